"""The sum of a counted step on described machines, as one number for each: for comparing two commits. Pure."""

from collections.abc import Sequence

from dpbench.cases.case import Case
from dpbench.projection.described.machine_file import load_machine
from dpbench.projection.fitted import fitted
from dpbench.projection.step_counts import count_step
from dpbench.projection.step_sum import Setting, sum_step
from dpbench.records.recording import Recording


def projected_ns(recording: Recording, case: Case, machines: Sequence[str]) -> dict[str, int]:
    """Return the step time in nanoseconds by machine. Each machine has as many devices as the case has lanes."""
    counts, setting = count_step(recording, case.batch), Setting(fitted=fitted())
    return {
        name: round(1e9 * sum_step(case.variant, counts, counts, load_machine(name), setting).step_s)
        for name in machines
    }
