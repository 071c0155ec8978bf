"""Make rounds by hand, and a stand-in for `take_round` with its clock."""

from collections.abc import Callable, Mapping, Sequence
from math import log
from random import Random

from dpbench.engine.messages import LockstepRound, SideName
from dpbench.gate.rounds import LogRatios, RoundRatio, SuiteRound
from dpbench.gate.settings import Benchmark, Cores
from dpbench.records.record import Outcome
from tests.records.making import ENVIRONMENT

STEP_S = 0.010


def benchmark(name: str = "wide", threshold: float = 0.03, cores: Cores = Cores.ONE) -> Benchmark:
    return Benchmark(name=name, workload="mlp/tiny", batch=8, devices="cpu*2", threshold=threshold, cores=cores)


def ratio(contrast: float, twin: float = 0.0, cores: str = "1") -> RoundRatio:
    """A round with these contrasts, which are logarithms."""
    return RoundRatio(
        median=LogRatios(head=contrast, twin=twin), base_s=STEP_S, head_s=STEP_S * (1 + contrast), cores=cores
    )


def rounds_with(quantity: str, contrast: float, half: float, twin: float = 0.0, count: int = 6) -> list[RoundRatio]:
    """Rounds whose `quantity`, "mean" or "later", is at `half` above and below this contrast; all others are 0."""
    zero = LogRatios(head=0.0, twin=0.0)
    rounds = []
    for sign in (1, -1) * (count // 2):
        chosen = {quantity: LogRatios(head=contrast + sign * half, twin=twin + sign * half)}
        rounds.append(ratio(sign * 0.001, sign * 0.001).model_copy(update={"mean": zero, "later": zero, **chosen}))
    return rounds


def rounds_of(contrast: float, half: float, twin: float = 0.0, twin_half: float = 0.001, count: int = 6):
    """Rounds at `half` above and below the given contrasts, so that these are the means."""
    return [ratio(contrast + sign * half, twin + sign * twin_half) for sign in (1, -1) * (count // 2)]


def lockstep_round(
    base: Sequence[Sequence[float]], twin: Sequence[Sequence[float]], head: Sequence[Sequence[float]]
) -> LockstepRound:
    times_s = {
        side: tuple(tuple(map(float, block)) for block in blocks)
        for side, blocks in ((SideName.BASE, base), (SideName.TWIN, twin), (SideName.HEAD, head))
    }
    return LockstepRound(benchmark="wide", outcome=Outcome.OK, times_s=times_s, cores="0")


class ScriptedTake:
    """Draws rounds in the place of `take_round`, with a clock on which one takes `round_s`.

    `calls` has the number and the benchmarks' names of each round.
    """

    def __init__(self, draw: Mapping[str, Callable[[], RoundRatio]], round_s: float = 1.0) -> None:
        self._draw, self._round_s, self._now_s = draw, round_s, 100.0
        self.calls: list[tuple[int, tuple[str, ...]]] = []

    def __call__(self, benchmarks: Sequence[Benchmark], number: int) -> SuiteRound:
        names = tuple(timed.name for timed in benchmarks)
        self.calls.append((number, names))
        self._now_s += self._round_s
        return SuiteRound({name: self._draw[name]() for name in names}, ENVIRONMENT)

    def clock(self) -> float:
        return self._now_s


def noisy(
    rng: Random, growth: float = 0.0, spread: float = 0.01, draw: Callable[[Random], float] | None = None
) -> Callable[[], RoundRatio]:
    """Return a function that draws rounds around `growth`, a share.

    The errors have the standard deviation `spread`. They are normal, or drawn by `draw`.
    """
    error = draw or (lambda r: r.gauss(0.0, 1.0))
    return lambda: ratio(log(1 + growth) + spread * error(rng), spread * error(rng))
