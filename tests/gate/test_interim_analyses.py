"""The schedule of interim analyses, and the alpha that each may spend."""

from itertools import islice, pairwise

import pytest

from dpbench.gate.verdict import FIRST_ANALYSIS, alpha_spent_at, analysis_rounds


def test_gaps_between_interim_analyses_grow():
    found = list(islice(analysis_rounds(), 12))
    assert found[:6] == [5, 7, 10, 14, 19, 27]
    assert found[0] == FIRST_ANALYSIS
    gaps = [after - before for before, after in pairwise(found)]
    assert gaps == sorted(gaps)


@pytest.mark.parametrize("risk", [0.005, 0.05, 0.00125])
def test_all_interim_analyses_together_spend_less_than_the_risk(risk):
    spent = [alpha_spent_at(analysis, risk) for analysis in range(1, 41)]
    assert sum(spent) < risk
    assert sum(spent) > 0.99 * risk
    assert spent == sorted(spent, reverse=True)
    assert min(spent) > 0


def test_there_is_no_interim_analysis_before_the_first():
    with pytest.raises(AssertionError):
        alpha_spent_at(0, 0.01)
