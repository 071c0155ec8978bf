"""`tuned[accumulate=k]` on devices of their own, where the lanes keep their gradients between micro-batches."""

import pytest

from dpbench.cases.case import Case
from dpbench.measure.fairness import error_against_oracle
from dpbench.measure.session import open_session
from dpbench.parallel.accumulate import KeptSums


@pytest.mark.parametrize("variant", ["tuned[accumulate=3]", "tuned[accumulate=2,dispatch=sequence,loss=replicas]"])
@pytest.mark.parametrize("workload", ["mlp/tiny", "convnet/tiny"])
def test_kept_gradients_are_those_of_the_plain_module(variant, workload, monkeypatch):
    kept, keep = [], KeptSums.keep

    def watched(self, *arguments):
        kept.append(keep(self, *arguments))
        return kept[-1]

    monkeypatch.setattr(KeptSums, "keep", watched)
    case = Case(variant=variant, workload=workload, batch=12, devices=("sim:0", "sim:1"), threads=1, dtype="float64")
    assert error_against_oracle(open_session(case)).error < 1e-9
    assert any(kept)
