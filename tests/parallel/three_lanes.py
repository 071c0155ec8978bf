"""A forward on three CPU lanes."""

from dpbench.parallel import DataParallel, Policy
from tests.parallel.models import Call

LANES = 3


def wrapped(forward, dispatch, **members):
    return DataParallel(Call(forward, **members), ["cpu"] * LANES, policy=Policy(dispatch=dispatch))
