"""Count uses that no counted step has: functions of a file, which a project names in its gate.toml.

    def hooked(devices):                  a use is what comes back: it is called three times, and the third call counts
        model = with_hooks(devices)
        return lambda: model(torch.ones(8, 4))

    def threads_left(devices):            or numbers of its own, which count as they are
        return {"left": 0}

    USES = {"hooked": hooked, "threads": threads_left}

On CPU lanes the host's work is counted, and on simulated devices what these do. A use that raises is *absent* and has
no other counter.
"""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch

from dpbench.measure.counted.details import Sites
from dpbench.measure.counted.host_work import HostWork
from dpbench.measure.python_calls import PythonCalls, PythonLines
from dpbench.measure.simulated_counts import counts_by_phase
from dpbench.records.count_record import ABSENT, Counts, Phase
from dpbench.simulator.simulation import mark, recording
from dpbench.workloads.resolve import attempt, current_directory_importable, kind_of
from dpbench.workloads.workload import WorkloadError

_CALLS_BEFORE = 2


def count_uses(file: Path, devices: Sequence[str], sites: Sites | None = None) -> Counts:
    """Counts whose `uses` are by name of use and counter. Raise WorkloadError if the file has no uses.

    Use the process once: garbage collection stays off.
    """
    torch.set_num_threads(1)
    counters = dict[str, int]()
    with current_directory_importable():
        uses = _uses_of(file)
        gc.disable()
        for name, use in uses.items():
            torch.manual_seed(0)
            try:
                counted = _counters_of(name, use(list(devices)), devices[0] == "cpu", sites)
            except Exception:  # of whatever kind: base and head are compared
                counted = {ABSENT: 1}
            counters |= {f"{name}.{counter}": value for counter, value in {ABSENT: 0, **counted}.items()}
    return Counts(phases={}, uses=counters)


def _uses_of(file: Path) -> Mapping[str, Callable[[list[str]], Any]]:
    named = f"uses: {file.name!r}"
    spec = spec_from_file_location(f"uses_of_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module, run = module_from_spec(spec), spec.loader.exec_module
    sys.modules[spec.name] = module
    attempt(named, "importing it", lambda: run(module))
    uses = getattr(module, "USES", None)
    if not isinstance(uses, Mapping) or not all(map(callable, uses.values())):
        raise WorkloadError(f"{named}: USES is {kind_of(uses)}; allowed: a dict of functions by name")
    return uses


def _counters_of(name: str, use: Any, is_cpu: bool, sites: Sites | None) -> dict[str, int]:
    if isinstance(use, Mapping):
        return {str(counter): int(value) for counter, value in use.items()}
    for _ in range(_CALLS_BEFORE):
        use()
    return _of_the_host(name, use, sites) if is_cpu else _of_devices(use)


def _of_the_host(name: str, use: Callable[[], object], sites: Sites | None) -> dict[str, int]:
    noted = sites.named(f"uses.{name}") if sites else None
    calls, lines = PythonCalls(noted.calls if noted else None), PythonLines(noted.lines if noted else None)
    work = HostWork(noted.host_operators if noted else None)
    for counter in (calls, lines, work):
        with counter:
            counter.enter(Phase.FORWARD)
            use()
    return {
        "python_calls": calls.by_phase()[Phase.FORWARD],
        "python_lines": lines.by_phase()[Phase.FORWARD],
        "host_operators": work.operators[Phase.FORWARD],
        "host_bytes": work.written_bytes[Phase.FORWARD],
    }


def _of_devices(use: Callable[[], object]) -> dict[str, int]:
    with recording() as recorded:
        mark(Phase.FORWARD)
        use()
    counters = Counter[str]()
    for counter, value in Counts(phases=counts_by_phase(recorded, [{}])).by_name().items():
        _, what, *link_and_unit = counter.split(".")
        counters[".".join([what, *link_and_unit[-1:]])] += value  # copies over all links together
    return dict(counters)
