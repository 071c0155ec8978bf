"""The base class of benchmarks over the grid."""

from dpbench.asv import grid
from dpbench.cases.machine_info import MachineInfo
from dpbench.jobs.probe import ask_machine

VARIANTS, WORKLOADS, BATCHES, LANES = map(list, grid.grid())


class _OverGrid:
    """Combinations that this machine cannot measure are skipped with a reason.

    A benchmark may use shorter lists of parameters. `version` is set by hand, because otherwise asv drops a benchmark's
    history when its source changes.
    """

    params = (VARIANTS, WORKLOADS, BATCHES, LANES)
    param_names = ("variant", "workload", "batch", "lanes")
    timeout = 300
    version = grid.VERSION

    def setup_cache(self) -> MachineInfo:
        """What a child finds on this machine. asv calls this once for each commit."""
        return ask_machine()

    def setup(self, machine: MachineInfo, variant: str, workload: str, batch: int, lanes: int) -> None:
        self.case = grid.case_of(variant, workload, batch, lanes, machine)
