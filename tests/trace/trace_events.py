"""A structural test of the Trace Event Format, as Perfetto reads it.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import itertools
import json
from collections import defaultdict


def faults(content):
    """Return what is wrong with the content of a trace file, one line each."""
    json.dumps(content, allow_nan=False)
    wrong, processes, threads = [], {}, {}
    tracks = defaultdict(list)
    for event in content["traceEvents"]:
        missing = {"ph", "name", "pid"} - event.keys()
        if missing:
            wrong.append(f"no {missing}")
        elif event["ph"] == "M":
            names = {"process_name": processes, "thread_name": threads}.get(event["name"])
            if names is not None:
                key = (event["pid"], event.get("tid"))
                wrong += [f"{key} is named twice"] if key in names else []
                names[key] = event["args"]["name"]
        elif event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
        else:
            wrong.append(f"unknown kind {event['ph']}")
    for (process, thread), events in tracks.items():
        wrong += [] if (process, None) in processes else [f"process {process} has no name"]
        wrong += [] if (process, thread) in threads else [f"thread {process}, {thread} has no name"]
        wrong += _times(events)
    return wrong


def _times(events):
    """Return the negative times and the overlaps of a track; times are whole nanoseconds."""
    wrong = [f"{span['name']}: {span['ts']}, {span['dur']}" for span in events if span["ts"] < 0 or span["dur"] < 0]
    spans = sorted(
        (round(1000 * span["ts"]), round(1000 * (span["ts"] + span["dur"])), span["name"]) for span in events
    )
    return wrong + [f"{a[2]} overlaps {b[2]}" for a, b in itertools.pairwise(spans) if b[0] < a[1]]
