"""A case as a step to take by turns with another process'."""

from collections.abc import Callable

import torch

from dpbench.measure.clock import make_clock
from dpbench.measure.fairness import error_against_oracle
from dpbench.measure.measurement import refuse_wrong_result
from dpbench.measure.session import Session, seat_of
from dpbench.measure.threads import candidates
from dpbench.measure.undisturbed import undisturbed
from dpbench.sweep.case import Case
from dpbench.variants.catalog import VARIANTS
from dpbench.workloads.catalog import resolve


def make_step(case: Case, *, checked: bool) -> Callable[[], float]:
    """Takes a step, of a variant of one process, and answers how many seconds it took.

    `checked`, its gradients are held against the oracle's beforehand: raises WrongResultError.

    Of thread counts worth trying it is always the first: two processes that each chose their own would differ in that.
    """
    variant, workload = VARIANTS[case.variant], resolve(case.workload, case.data)
    seat = seat_of(case, variant, rank=0, ranks=1)
    torch.set_num_threads(candidates(case, variant)[0])
    if checked:
        refuse_wrong_result(case, error_against_oracle(case, workload, variant, seat))
    return undisturbed(Session(case, workload, variant, seat).step, make_clock(seat.devices))
