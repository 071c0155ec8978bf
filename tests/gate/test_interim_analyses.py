"""The plan of looks."""

from itertools import islice, pairwise

import pytest

from dpbench.gate.verdict import FIRST, alpha_spent_at, looks


def test_looks_are_soon_and_then_rarer():
    found = list(islice(looks(), 12))
    assert found[:6] == [5, 7, 10, 14, 19, 27]
    assert found[0] == FIRST
    gaps = [after - before for before, after in pairwise(found)]
    assert gaps == sorted(gaps)


@pytest.mark.parametrize("risk", [0.005, 0.05, 0.00125])
def test_all_looks_together_spend_less_than_the_risk(risk):
    spent = [alpha_spent_at(look, risk) for look in range(1, 41)]
    assert sum(spent) < risk
    assert sum(spent) > 0.99 * risk
    assert spent == sorted(spent, reverse=True)
    assert min(spent) > 0


def test_there_is_no_look_before_the_first():
    with pytest.raises(AssertionError):
        alpha_spent_at(0, 0.01)
