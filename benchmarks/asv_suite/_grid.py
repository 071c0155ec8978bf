"""The base of benchmarks over the grid."""

from dpbench.asv import grid
from dpbench.run.ask import ask_machine
from dpbench.sweep.machine_info import MachineInfo

VARIANTS, WORKLOADS, BATCHES, LANES = map(list, grid.grid())


class _OverGrid:
    """Of the lists of parameters each benchmark may take fewer; what this machine lacks is skipped with its reason.

    `version` is set by hand: without it asv drops the history of a benchmark whose source changes.
    """

    params = (VARIANTS, WORKLOADS, BATCHES, LANES)
    param_names = ("variant", "workload", "batch", "lanes")
    timeout = 300
    version = grid.VERSION

    def setup_cache(self) -> MachineInfo:
        """Once for each commit: what this machine has, from a child."""
        return ask_machine()

    def setup(self, machine: MachineInfo, variant: str, workload: str, batch: int, lanes: int) -> None:
        self.case = grid.case_of(variant, workload, batch, lanes, machine)
