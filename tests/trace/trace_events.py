"""A structural test of the Trace Event Format, as Perfetto reads it.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

import itertools
import json
from collections import defaultdict


def faults(content):
    """Return what is wrong with the content of a trace file, one line each."""
    json.dumps(content, allow_nan=False)
    found, processes, threads = [], {}, {}
    tracks = defaultdict(list)
    for event in content["traceEvents"]:
        missing = {"ph", "name", "pid"} - event.keys()
        if missing:
            found.append(f"no {missing}")
        elif event["ph"] == "M":
            names = {"process_name": processes, "thread_name": threads}.get(event["name"])
            if names is not None:
                key = (event["pid"], event.get("tid"))
                found += [f"{key} is named twice"] if key in names else []
                names[key] = event["args"]["name"]
        elif event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append(event)
        else:
            found.append(f"unknown kind {event['ph']}")
    for (process, thread), events in tracks.items():
        found += [] if (process, None) in processes else [f"process {process} has no name"]
        found += [] if (process, thread) in threads else [f"thread {process}, {thread} has no name"]
        found += _times(events)
    return found


def _times(events):
    """Return the negative times and the overlaps of a track; times are whole nanoseconds."""
    wrong = [f"{each['name']}: {each['ts']}, {each['dur']}" for each in events if each["ts"] < 0 or each["dur"] < 0]
    spans = sorted(
        (round(1000 * each["ts"]), round(1000 * (each["ts"] + each["dur"])), each["name"]) for each in events
    )
    return wrong + [f"{a[2]} overlaps {b[2]}" for a, b in itertools.pairwise(spans) if b[0] < a[1]]
