"""A sweep as `dpbench sweep` runs it, with children that measure nothing.

    storm_parent.py FILE ROUNDS

It measures the rounds that the store FILE lacks.
"""

import sys
from pathlib import Path

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.plan import plan
from dpbench.cases.spec import Spec
from dpbench.jobs.round import RoundProcesses
from dpbench.jobs.sweep import run_sweep
from dpbench.records.store import Store

MACHINE = MachineInfo(python="3", torch="2", cpu_model="a CPU", cores=1, memory_bytes=1)
VARIANTS = ("naive", "floor", "tuned")
ROUND = [sys.executable, str(Path(__file__).with_name("storm_round.py"))]


def spec_of(rounds: int) -> Spec:
    return Spec.model_validate({"variants": VARIANTS, "devices": ["cpu*2"], "rounds": rounds, "timeout": 30})


def main() -> None:
    spec = spec_of(int(sys.argv[2]))
    store, runner = Store(Path(sys.argv[1])), RoundProcesses(ROUND)
    run_sweep(spec, plan(spec, MACHINE), store, lambda _: None, runner=runner)


if __name__ == "__main__":
    main()
