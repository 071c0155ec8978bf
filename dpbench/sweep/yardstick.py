"""What a case's time is held against: one device alone."""

from math import ceil

from dpbench.sweep.case import Case
from dpbench.sweep.devices import are_shared
from dpbench.sweep.names import VariantName


def on_one_device(case: Case) -> Case:
    """`single` with the whole batch on the first device: the same computation without any parallelism."""
    return case.model_copy(update={"variant": VariantName.SINGLE, "devices": case.devices[:1]})


def yardstick(case: Case) -> Case:
    """The `single` case of which `case` is a percentage.

    Where each lane has its own device it is the largest chunk alone: no data-parallel scheme is faster, so the
    percentage is of a limit. Where lanes share a device there is no such limit, and it is the whole batch.
    """
    single = on_one_device(case)
    if are_shared(case.devices):
        return single
    return single.model_copy(update={"batch": ceil(case.batch / len(case.devices))})
