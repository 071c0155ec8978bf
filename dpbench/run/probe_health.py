"""The child that examines this box: nothing on stdin, Findings on a pipe of its own.

    python -m dpbench.run.probe_health --record-fd N --parent-pid P

It looks at the host before it loads anything, and at the GPUs before it uses one, so as not to find itself.
"""

import argparse
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench.results.finding import Finding, Findings, unknown
from dpbench.run.lifeline import die_with_parent
from dpbench.run.probe import one_line, read_accelerators
from dpbench.run.probe_host import examine_host
from dpbench.run.probe_packages import examine_packages

if TYPE_CHECKING:
    import torch


def main() -> None:
    options = _options()
    die_with_parent(options.parent_pid)
    findings = Findings(findings=tuple(examine()))
    with os.fdopen(options.record_fd, "w") as pipe:
        pipe.write(findings.model_dump_json())


def examine() -> list[Finding]:
    return [
        *_told("host", examine_host),
        *_told("distribution", examine_packages),
        *_told("GPUs", _gpus),
        *_told("links", _links),
        *_told("bandwidth", _bandwidth),
    ]


def _told(what: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What cannot be looked at, for whatever reason, is told and keeps nothing else from being looked at."""
    try:
        return look()
    except Exception as error:
        return [unknown(what, f"{type(error).__name__}: {one_line(error)}")]


def _gpus() -> list[Finding]:
    from dpbench.run.probe_gpus import examine_gpus

    return examine_gpus()


def _links() -> list[Finding]:
    devices = _devices()
    if len(devices) < 2:
        return []
    from dpbench.run.probe_links import examine_links

    return examine_links(devices)


def _bandwidth() -> list[Finding]:
    from dpbench.run.probe_bandwidth import examine_bandwidth

    return examine_bandwidth(_devices())


def _devices() -> "list[torch.device]":
    import torch

    return [torch.device(found.device) for found in read_accelerators()[0]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dpbench.run.probe_health", description=__doc__)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--record-fd", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
