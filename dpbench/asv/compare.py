"""Two commits by asv's results: the medians of `asv compare`, intervals of ratios, and why there is none. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from dpbench.asv.result_file import Measured, Point, ResultFile, ResultRow
from dpbench.asv.samples import ratio_of_medians
from dpbench.stats.rounds import Estimate

Files = Mapping[str, ResultFile]
"""Of one commit, by the name of the environment that measured it."""


class Gap(StrEnum):
    """Why a commit has no number."""

    FAILED = "failed"
    SKIPPED = "skipped"
    ABSENT = "absent"


Figure = Measured | Gap


@dataclass(frozen=True)
class Pair:
    """One combination of parameters; `why_unsupported` is None where there is a ratio, of head's median to base's."""

    params: Point
    base: Figure
    head: Figure
    ratio: Estimate | None
    why_unsupported: str | None

    @property
    def is_empty(self) -> bool:
        """Both commits left it out."""
        return all(figure in (Gap.SKIPPED, Gap.ABSENT) for figure in (self.base, self.head))

    @property
    def is_full(self) -> bool:
        """Both commits have a number."""
        return not isinstance(self.base, Gap) and not isinstance(self.head, Gap)


@dataclass(frozen=True)
class BenchmarkPairs:
    environment: str
    name: str
    pairs: tuple[Pair, ...]


def compare_commits(base: Files, head: Files, *, allow_different: bool = False) -> tuple[BenchmarkPairs, ...]:
    """As `asv compare` does: like benchmarks of like environments. Raises AsvError for a row that is none.

    There is no ratio where the version of a benchmark has changed, or, unless `allow_different`, the machine.
    """
    found = []
    for environment in dict.fromkeys([*base, *head]):
        files = base.get(environment), head.get(environment)
        different = None if allow_different else _different_machines(*files)
        names = dict.fromkeys(name for file in files if file is not None for name in file.results)
        for name in names:
            rows = [None if file is None else file.row(name) for file in files]
            found.append(BenchmarkPairs(environment, name, tuple(_pairs(*rows, why_unsupported=different))))
    return tuple(found)


def _different_machines(base: ResultFile | None, head: ResultFile | None) -> str | None:
    if base is None or head is None:
        return None
    names = dict.fromkeys([*base.params, *head.params])
    told = [
        f"{name} ({base.params.get(name)!r} / {head.params.get(name)!r})"
        for name in names
        if base.params.get(name) != head.params.get(name)
    ]
    return f"the machine differs in {', '.join(told)}" if told else None


def _pairs(base: ResultRow | None, head: ResultRow | None, *, why_unsupported: str | None) -> Iterator[Pair]:
    rows = [row for row in (base, head) if row is not None]
    if len({row.version for row in rows}) > 1:
        why_unsupported = f"the benchmark's version differs ({' / '.join(repr(row.version) for row in rows)})"
    for place in dict.fromkeys(place for row in rows for place in product(*row.params)):
        yield _pair(place, _figure(base, place), _figure(head, place), why_unsupported)


def _figure(row: ResultRow | None, place: Point) -> Figure:
    if row is None:
        return Gap.ABSENT
    if place in row.points:
        return row.points[place]
    if place in row.failed:
        return Gap.FAILED
    return Gap.SKIPPED if place in product(*row.params) else Gap.ABSENT


def _pair(place: Point, base: Figure, head: Figure, why_unsupported: str | None) -> Pair:
    gaps = [f"{figure} in {name}" for name, figure in (("base", base), ("head", head)) if isinstance(figure, Gap)]
    if gaps:
        return Pair(place, base, head, None, ", ".join(gaps))
    assert isinstance(base, Measured)
    assert isinstance(head, Measured)
    if why_unsupported is None and base.result <= 0:
        why_unsupported = f"base is {base.result:g}"
    return Pair(place, base, head, None if why_unsupported else ratio_of_medians(head, base), why_unsupported)
