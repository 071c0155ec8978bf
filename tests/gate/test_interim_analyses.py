"""The schedule of interim analyses, and the alpha that each may spend."""

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.gate.time_verdict import FIRST_ANALYSIS, Analysis, alpha_spent_at, analysis_rounds


def test_gaps_between_interim_analyses_grow():
    found = list(islice(analysis_rounds(), 12))
    assert found[:6] == [5, 7, 10, 14, 19, 27]
    assert found[0] == FIRST_ANALYSIS
    gaps = [after - before for before, after in pairwise(found)]
    assert gaps == sorted(gaps)


@pytest.mark.parametrize("risk", [0.005, 0.05, 0.00125])
@given(times=st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_all_interim_analyses_together_spend_at_most_the_risk(risk, times):
    shares = [0.0, *sorted(times)[:-1], 1.0]
    analyses = [Analysis(i, share, before) for i, (before, share) in enumerate(pairwise(shares), start=1)]
    spent = [alpha_spent_at(analysis, risk) for analysis in analyses]
    assert risk * 0.7 < sum(spent) <= risk
    assert min(spent) > 0


def test_a_single_analysis_at_the_end_spends_three_quarters():
    assert alpha_spent_at(Analysis(1, 1.0), 0.04) == pytest.approx(0.03)


def test_late_analyses_may_spend_more_than_early_ones():
    """Small changes are seen late, so half of the risk waits for the end."""
    early, late = Analysis(1, 0.1), Analysis(6, 1.0, 0.7)
    assert alpha_spent_at(late, 1.0) == pytest.approx((1 / 64 + 1 - 0.49) / 2)
    assert alpha_spent_at(early, 1.0) == pytest.approx((1 / 2 + 0.01) / 2)


@pytest.mark.parametrize("wrong", [(0, 0.1, 0.0), (1, 1.1, 0.0), (2, 0.2, 0.3)])
def test_there_is_no_analysis_before_the_first_or_back_in_time(wrong):
    with pytest.raises(AssertionError):
        Analysis(*wrong)
