"""`tuned[accumulate=k]`: its steps use the wrapper's context, and its gradients are held against the oracle."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.cases.names import Data
from dpbench.measure.fairness import TOLERANCE, error_against_oracle
from dpbench.measure.session import RankPlacement, Session, open_session
from dpbench.parallel import DataParallel
from dpbench.variants.registry import variant_of
from dpbench.workloads.resolve import resolve

ALLOWED = TOLERANCE["float32"]


def of(variant, workload="mlp/tiny", batch=14):
    return Case(variant=variant, workload=workload, batch=batch, devices=("cpu", "cpu"), threads=1)


@pytest.mark.parametrize("variant", ["tuned[accumulate=3]", "tuned[accumulate=3,loss=replicas]"])
@pytest.mark.parametrize("workload", ["mlp/tiny", "convnet/tiny", "embedding_sparse/tiny"])
def test_the_gradients_are_those_of_the_plain_module(variant, workload):
    assert error_against_oracle(open_session(of(variant, workload))).error <= ALLOWED


def test_all_micro_batches_but_the_last_are_in_the_wrappers_context(monkeypatch):
    entered, context = [], DataParallel.accumulate

    def accumulate(self):
        entered.append(self)
        return context(self)

    monkeypatch.setattr(DataParallel, "accumulate", accumulate)
    session = open_session(of("tuned[accumulate=3]"))
    session.step()
    assert entered == [session.scheme] * 2


def test_a_context_that_loses_gradients_is_a_wrong_result():
    @contextmanager
    def losing(scheme):
        yield
        scheme.zero_grad()

    case = of("tuned[accumulate=3]")
    broken = replace(variant_of(case.variant), without_reduction=losing)
    session = Session(case, resolve(case.workload, Data.RANDOM), broken, RankPlacement((torch.device("cpu"),) * 2))
    assert error_against_oracle(session).error > ALLOWED
