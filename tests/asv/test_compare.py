"""Pairs, gaps and ratios. tests/benchmarks compares the medians with asv's own."""

import random

import pytest

from dpbench.asv.compare import AsvChange, Gap, compare_commits
from dpbench.asv.machine_file import AsvError
from dpbench.asv.result_file import Measured, ResultFile, ResultRow

PARAMS = (("'a'", "'b'"), ("1", "2"))
MACHINE = {"machine": "here", "gpu": "none", "torch": "2.13.0"}
A1, A2, B1, B2 = ("'a'", "1"), ("'a'", "2"), ("'b'", "1"), ("'b'", "2")


def files(*, environment="shared", machine=MACHINE, **rows):
    """Return the files of a commit with one environment that has these rows, by benchmark."""
    file = ResultFile(
        commit_hash="0" * 40, env_name=environment, date=0, params=machine, python="3.11", requirements={}
    )
    for name, row in rows.items():
        file = file.with_row(name, row)
    return {environment: file}


def row(points, *, failed=(), params=PARAMS, version="1"):
    return ResultRow(params, version, points, frozenset(failed))


def samples(middle, seed):
    rng = random.Random(seed)
    return tuple(middle * rng.lognormvariate(0, 0.02) for _ in range(40))


def measured(middle, seed=0):
    found = samples(middle, seed)
    return Measured(sorted(found)[20], None, found)


def pairs(base, head, **options):
    (benchmark,) = compare_commits(base, head, **options)
    return {pair.params: pair for pair in benchmark.pairs}


def test_the_ratio_is_of_medians_and_its_interval_of_samples():
    base, head = measured(1.0, 1), measured(3.0, 2)
    pair = pairs(files(b=row({A1: base})), files(b=row({A1: head})))[A1]
    assert (pair.base, pair.head, pair.why_no_ratio) == (base, head, None)
    assert pair.ratio.value == head.result / base.result
    assert 2.9 < pair.ratio.low < pair.ratio.value < pair.ratio.high < 3.1


def test_a_gap_has_its_reason_and_no_ratio():
    base = files(b=row({A1: Measured(1.0), A2: Measured(1.0)}, failed=[B1]))
    head = files(b=row({B1: Measured(1.0)}, failed=[A1]))
    found = pairs(base, head)
    assert (found[A1].head, found[A1].why_no_ratio) == (Gap.FAILED, "failed in head")
    assert (found[A2].head, found[A2].why_no_ratio) == (Gap.SKIPPED, "skipped in head")
    assert (found[B1].base, found[B1].why_no_ratio) == (Gap.FAILED, "failed in base")
    assert found[B2].why_no_ratio == "skipped in base, skipped in head"
    assert [place for place, pair in found.items() if pair.is_empty] == [B2]
    assert not any(pair.ratio for pair in found.values())


def test_parameters_that_only_one_commit_knows_are_absent_in_the_other():
    base = files(b=row({A1: Measured(1.0)}))
    head = files(b=row({("'c'", "1"): Measured(1.0)}, params=(("'c'",), ("1",))))
    found = pairs(base, head)
    assert (found[A1].head, found["'c'", "1"].base) == (Gap.ABSENT, Gap.ABSENT)
    fewer = files(b=row({("'a'",): Measured(1.0)}, params=(("'a'",),)))
    assert pairs(base, fewer)[A1].head is Gap.ABSENT


def test_benchmarks_in_different_environments_are_not_paired():
    base = files(environment="old", only_base=row({A1: Measured(1.0)}), both=row({A1: Measured(1.0)}))
    head = files(environment="new", both=row({A1: Measured(1.0)}))
    found = {(each.environment, each.name): each.pairs[0] for each in compare_commits(base, head)}
    assert list(found) == [("old", "only_base"), ("old", "both"), ("new", "both")]
    assert not any(pair.ratio for pair in found.values())
    assert found["old", "both"].head is found["new", "both"].base is Gap.ABSENT


def test_different_versions_have_no_ratio():
    found = pairs(files(b=row({A1: Measured(1.0)})), files(b=row({A1: Measured(1.0)}, version="2")))
    assert (found[A1].ratio, found[A1].why_no_ratio) == (None, "the benchmark's version differs ('1' / '2')")
    assert found[A1].is_full


def test_different_machines_have_no_ratio_unless_allowed():
    base = files(b=row({A1: Measured(1.0)}))
    head = files(b=row({A1: Measured(2.0)}), machine={**MACHINE, "torch": "2.12.0", "nccl": "2.29"})
    assert (
        pairs(base, head)[A1].why_no_ratio == "the machine differs in torch ('2.13.0' / '2.12.0'), nccl (None / '2.29')"
    )
    assert pairs(base, head)[A1].ratio is None
    assert pairs(base, head, allow_different=True)[A1].ratio.value == 2


@pytest.mark.parametrize(("result", "reason"), [(0.0, "base is 0"), (-1.0, "base is -1")])
def test_a_base_that_is_not_above_zero_has_no_ratio(result, reason):
    base, head = files(b=row({A1: Measured(result)})), files(b=row({A1: Measured(2.0)}))
    assert (pairs(base, head)[A1].ratio, pairs(base, head)[A1].why_no_ratio) == (None, reason)
    assert pairs(head, base)[A1].ratio.value == result / 2


@pytest.mark.parametrize(
    ("base", "head", "change"),
    [
        (measured(1.0, 1), measured(3.0, 2), AsvChange.WORSE),
        (measured(3.0, 1), measured(1.0, 2), AsvChange.BETTER),
        (measured(1.0, 1), measured(1.05, 2), None),  # beyond noise, and below the factor
        (measured(1.0, 1), measured(1.0, 2), None),
        (Measured(1.0), Measured(3.0), None),  # no samples, no interval
    ],
)
def test_a_time_is_worse_beyond_its_interval_and_the_factor(base, head, change):
    assert pairs(files(b=row({A1: base})), files(b=row({A1: head})))[A1].change is change


def test_a_smaller_factor_marks_smaller_changes():
    found = pairs(files(b=row({A1: measured(1.0, 1)})), files(b=row({A1: measured(1.05, 2)})), factor=1.02)
    assert found[A1].change is AsvChange.WORSE
    wide = Measured(1.5, None, tuple(0.2 * i for i in range(1, 15)))
    assert pairs(files(b=row({A1: wide})), files(b=row({A1: measured(1.9)})), factor=1.0)[A1].change is None


@pytest.mark.parametrize(
    ("base", "head", "change"),
    [(100, 101, AsvChange.WORSE), (0, 1, AsvChange.WORSE), (5, 5, None), (5, 4, AsvChange.BETTER)],
)
def test_any_difference_of_an_exact_counter_is_a_change(base, head, change):
    name = "counters.Counters.track_copies"
    before, after = (files(**{name: row({A1: Measured(float(count))})}) for count in (base, head))
    assert pairs(before, after)[A1].change is change
    other = files(**{name: row({A1: Measured(float(head))}, version="2")})
    assert pairs(before, other)[A1].change is None


def test_what_fails_in_head_only_is_worse():
    good, bad = files(b=row({A1: Measured(1.0)})), files(b=row({}, failed=[A1]))
    assert (pairs(good, bad)[A1].change, pairs(bad, good)[A1].change) == (AsvChange.WORSE, None)
    assert pairs(bad, bad)[A1].change is None


def test_a_row_that_cannot_be_read_is_reported():
    good = files(b=row({A1: Measured(1.0)}))
    bad = {"shared": good["shared"].model_copy(update={"results": {"b": [["x"], []]}})}
    with pytest.raises(AsvError, match=r"b: is not a row of results: result is 'x': Input should be a valid number"):
        compare_commits(good, bad)
