"""Compare two commits by asv's results: medians, ratios, what is worse, and why there is no ratio. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from dpbench.asv.result_file import Measured, Point, ResultFile, ResultRow
from dpbench.asv.samples import ratio_of_medians
from dpbench.stats.rounds import Estimate

Files = Mapping[str, ResultFile]
"""The results files of one commit, by the name of asv's environment."""


class Gap(StrEnum):
    """Why a commit has no number for a combination of parameters."""

    FAILED = "failed"
    SKIPPED = "skipped"
    ABSENT = "absent"


Figure = Measured | Gap

EXACT = "counters."
"""asv's names of exact counters begin with it: equal code has equal counts, so any difference is a change."""


class AsvChange(StrEnum):
    """How head differs from base, beyond noise."""

    WORSE = "worse"
    BETTER = "better"


@dataclass(frozen=True)
class Pair:
    """One combination of parameters in both commits.

    `ratio` is head's median over base's. If it is None, `why_no_ratio` has the reason. `change` is None if there is
    none, or if the samples do not show one.
    """

    params: Point
    base: Figure
    head: Figure
    ratio: Estimate | None
    why_no_ratio: str | None
    change: AsvChange | None = None

    @property
    def is_empty(self) -> bool:
        """Whether neither commit measured it."""
        return all(figure in (Gap.SKIPPED, Gap.ABSENT) for figure in (self.base, self.head))

    @property
    def is_full(self) -> bool:
        """Whether both commits have a number."""
        return not isinstance(self.base, Gap) and not isinstance(self.head, Gap)


@dataclass(frozen=True)
class BenchmarkPairs:
    """The pairs of one benchmark in one environment."""

    environment: str
    name: str
    pairs: tuple[Pair, ...]


def compare_commits(
    base: Files, head: Files, *, allow_different: bool = False, factor: float = 1.1
) -> tuple[BenchmarkPairs, ...]:
    """Return the pairs of each benchmark and environment, as `asv compare` pairs them.

    There is no ratio if the benchmark's version changed. There is none either if the machine changed, unless
    `allow_different`. A time changes if its ratio is `factor` or its inverse, or beyond, and the ratio's interval
    excludes 1. A counter changes with any difference. What failed in head only is worse. Raises AsvError if a row
    cannot be read.
    """
    found = []
    for environment in dict.fromkeys([*base, *head]):
        files = base.get(environment), head.get(environment)
        different = None if allow_different else _different_machines(*files)
        names = dict.fromkeys(name for file in files if file is not None for name in file.results)
        for name in names:
            rows = [None if file is None else file.row(name) for file in files]
            rule = None if name.startswith(EXACT) else factor
            found.append(BenchmarkPairs(environment, name, tuple(_pairs(*rows, factor=rule, why_no_ratio=different))))
    return tuple(found)


def _change_of_count(base: float, head: float) -> AsvChange | None:
    if head == base:
        return None
    return AsvChange.WORSE if head > base else AsvChange.BETTER


def _change_of_time(ratio: Estimate | None, factor: float) -> AsvChange | None:
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    if ratio.low > 1 and ratio.value >= factor:
        return AsvChange.WORSE
    return AsvChange.BETTER if ratio.high < 1 and ratio.value <= 1 / factor else None


def _different_machines(base: ResultFile | None, head: ResultFile | None) -> str | None:
    if base is None or head is None:
        return None
    names = dict.fromkeys([*base.params, *head.params])
    differences = [
        f"{name} ({base.params.get(name)!r} / {head.params.get(name)!r})"
        for name in names
        if base.params.get(name) != head.params.get(name)
    ]
    return f"the machine differs in {', '.join(differences)}" if differences else None


def _pairs(
    base: ResultRow | None, head: ResultRow | None, *, factor: float | None, why_no_ratio: str | None
) -> Iterator[Pair]:
    """Yield the pairs of one benchmark. `factor` is None for exact counters."""
    rows = [row for row in (base, head) if row is not None]
    if len({row.version for row in rows}) > 1:
        why_no_ratio = f"the benchmark's version differs ({' / '.join(repr(row.version) for row in rows)})"
    for place in dict.fromkeys(place for row in rows for place in product(*row.params)):
        yield _pair(place, _figure(base, place), _figure(head, place), factor, why_no_ratio)


def _figure(row: ResultRow | None, place: Point) -> Figure:
    if row is None:
        return Gap.ABSENT
    if place in row.points:
        return row.points[place]
    if place in row.failed:
        return Gap.FAILED
    return Gap.SKIPPED if place in product(*row.params) else Gap.ABSENT


def _pair(place: Point, base: Figure, head: Figure, factor: float | None, why_no_ratio: str | None) -> Pair:
    gaps = [f"{figure} in {name}" for name, figure in (("base", base), ("head", head)) if isinstance(figure, Gap)]
    if gaps:
        broke = head is Gap.FAILED and not isinstance(base, Gap)
        return Pair(place, base, head, None, ", ".join(gaps), AsvChange.WORSE if broke else None)
    assert isinstance(base, Measured)
    assert isinstance(head, Measured)
    if why_no_ratio is not None:
        return Pair(place, base, head, None, why_no_ratio)
    ratio = ratio_of_medians(head, base) if base.result > 0 else None
    change = _change_of_count(base.result, head.result) if factor is None else _change_of_time(ratio, factor)
    return Pair(place, base, head, ratio, None if ratio else f"base is {base.result:g}", change)
