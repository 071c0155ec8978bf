"""Count as head's what head does outside of the times that its steps report.

    side's own clock     ├── step ──┤      ├── step ──┤
    coordinator's clock  ├──────────── block ───────────────┤ ├─ block of base ─┤
                                    between   waits for a core       elsewhere

between     threads that a step leaves behind run between the steps
waits       a step's clock stops while the side waits for a core, also if a helper has it that nobody can see
elsewhere   threads and processes of head run while another side is measured

Base and its twin show how much of each is usual in these minutes: blocks alternate in random order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dpbench.engine.messages import SideName
from dpbench.jobs.forks import Block, Taken

_SHARE = 0.1
_LEAST_S = 50e-6
"""Nothing is hidden up to `_SHARE` of the longer block of base or head, and up to `_LEAST_S`.

With equal code the difference between steps was 0.36 of that at most, in 126 side-rounds of six benchmarks (2 shared
cores, load averages of 5 and 9; upper quartile, less that of the other two sides).
"""

Blocks = Mapping[SideName, Sequence[Taken]]


@dataclass(frozen=True)
class _Kind:
    """Hidden is what the `quantile` of head's blocks has above `usual` times the upper quartile of the others.

    A few disturbed blocks do not count.
    """

    note: str
    quantile: float = 3 / 4
    usual: float = 1.0
    least_blocks: int = 4


_BETWEEN = _Kind("took {:.3g} ms more by the gate's clock")
# A step that sleeps more often waits more for a busy core. Half of head's blocks are above the others' upper quartile
# in one of a million rounds of equal code with 80 blocks, in one of 70 with 20.
_WAITS = _Kind("waited {:.3g} ms more for a core than base's", quantile=1 / 2, usual=1.5, least_blocks=20)
_ELSEWHERE = _Kind("went on for {:.3g} ms while other sides were measured")


def with_hidden_work(taken: Blocks, *, is_borrowed: bool) -> tuple[list[Block], str | None]:
    """Head's blocks, lengthened by what is hidden, and a note that says so.

    A borrowed benchmark sets itself up between its samples, at its leisure, so only `elsewhere` counts there.
    """
    between_s = {name: [block.outside_s - block.reported_s for block in blocks] for name, blocks in taken.items()}
    gaps_s = {name: [block.wall_s - block.reported_s for block in blocks] for name, blocks in taken.items()}
    inside = () if is_borrowed else ((_WAITS, gaps_s), (_BETWEEN, between_s))  # a gap has what is between steps, too
    found = [_hidden_s(kind, seconds, taken) for kind, seconds in inside]
    found = [next(filter(None, found), None), _hidden_s(_ELSEWHERE, _elsewhere_s(taken), taken)]
    hidden = list(filter(None, found))
    blocks = [
        tuple(step_s * (1 + sum(more_s[index] for more_s, _ in hidden) / block.reported_s) for step_s in block.steps_s)
        for index, block in enumerate(taken[SideName.HEAD])
    ]
    if not hidden:
        return blocks, None
    block_s = median(block.reported_s for block in taken[SideName.HEAD])
    what = " and ".join(note for _, note in hidden)
    counts = "which counts as the steps' time: work goes on behind the steps"
    return blocks, f"head's blocks of {block_s * 1e3:.3g} ms by their steps {what}, {counts}"


def set_up_ratio(taken: Blocks) -> float | None:
    """Head's time between the calls of a borrowed benchmark by base's; None if neither is a tenth of the calls."""
    base, head = (
        median(block.outside_s - block.reported_s for name in names for block in taken[name])
        for names in ((SideName.BASE, SideName.TWIN), (SideName.HEAD,))
    )
    least_s = _SHARE * median(block.reported_s for block in taken[SideName.BASE])
    return max(head, least_s) / max(base, least_s) if max(base, head) > least_s else None


def _hidden_s(kind: _Kind, seconds: Mapping[SideName, list[float]], taken: Blocks) -> tuple[list[float], str] | None:
    """What is hidden in each of head's blocks, and the note; None if it is not much."""
    head, base = (median(block.reported_s for block in taken[name]) for name in (SideName.HEAD, SideName.BASE))
    usual_s = max(0.0, _quantile([*seconds[SideName.BASE], *seconds[SideName.TWIN]], 3 / 4))
    usual_s *= kind.usual * (max(1.0, head / base) if kind is _WAITS else 1.0)
    more_s = _quantile(seconds[SideName.HEAD], kind.quantile) - usual_s
    if len(taken[SideName.HEAD]) < kind.least_blocks or more_s <= _SHARE * max(head, base) + _LEAST_S:
        return None
    return [max(0.0, block_s - usual_s) for block_s in seconds[SideName.HEAD]], kind.note.format(more_s * 1e3)


def _elsewhere_s(taken: Blocks) -> dict[SideName, list[float]]:
    """The CPU seconds of each side in the blocks of the other two."""
    return {
        name: [
            sum(block.others_s.get(name, 0.0) for block in together)
            for together in zip(*(blocks for other, blocks in taken.items() if other is not name), strict=True)
        ]
        for name in taken
    }


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int((len(values) - 1) * share)]
