"""The base of benchmarks over the grid."""

from dpbench.run.ask import ask_box
from dpbench.sweep import history
from dpbench.sweep.box import Box

VARIANTS, WORKLOADS, BATCHES, LANES = map(list, history.grid())


class _OverGrid:
    """Of the lists of parameters each benchmark may take fewer; what this box lacks is skipped with its reason.

    `version` is set by hand: without it asv drops the history of a benchmark whose source changes.
    """

    params = (VARIANTS, WORKLOADS, BATCHES, LANES)
    param_names = ("variant", "workload", "batch", "lanes")
    timeout = 300
    version = history.VERSION

    def setup_cache(self) -> Box:
        """Once for each commit: what this box has, from a child."""
        return ask_box()

    def setup(self, box: Box, variant: str, workload: str, batch: int, lanes: int) -> None:
        self.case = history.case_of(variant, workload, batch, lanes, box)
