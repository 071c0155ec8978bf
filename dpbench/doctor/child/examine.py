"""The child that examines this machine.

    python -m dpbench.doctor.child.examine --record-fd N --parent-pid P

It examines the host before it imports torch, and the GPUs before it uses one, or it would find its own load.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from dpbench.doctor.child.host_findings import examine_host
from dpbench.doctor.child.packages import examine_packages, examine_pynvml
from dpbench.doctor.findings import Finding, Findings, unknown
from dpbench.engine.child import answer
from dpbench.jobs.probe_child import first_line, read_accelerators
from dpbench.text.validated import Frozen

if TYPE_CHECKING:
    import torch


def examine() -> list[Finding]:
    return [
        *_findings_or_unknown("host", examine_host),
        *_findings_or_unknown("distribution", examine_packages),
        *_findings_or_unknown("pynvml", examine_pynvml),
        *_findings_or_unknown("GPUs", _gpus),
        *_findings_or_unknown("links", _links),
        *_findings_or_unknown("bandwidth", _bandwidth),
    ]


def _findings_or_unknown(what: str, examination: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return examination()
    except Exception as error:
        return [unknown(what, f"{type(error).__name__}: {first_line(error)}")]


def _gpus() -> list[Finding]:
    from dpbench.doctor.child.gpus import examine_gpus

    return examine_gpus()


def _links() -> list[Finding]:
    devices = _devices()
    if len(devices) < 2:
        return []
    from dpbench.doctor.child.gpu_links import QUEUES, examine_connections, examine_links, examine_route

    queues = [examine_connections(len(devices), os.environ.get(QUEUES))] if devices[0].type == "cuda" else []
    return [*examine_links(devices), *examine_route(devices), *queues]


def _bandwidth() -> list[Finding]:
    from dpbench.doctor.child.bandwidth import examine_bandwidth

    return examine_bandwidth(_devices())


def _devices() -> "list[torch.device]":
    import torch

    return [torch.device(accelerator.device) for accelerator in read_accelerators()[0]]


def respond(_: Frozen) -> Findings:
    return Findings(findings=tuple(examine()))


if __name__ == "__main__":
    answer(respond)
