"""Inject a slowdown of known size into the wrapper of a commit's folder.

The slowdown is an empty loop before each forward. A loop is work, not sleep: it takes the same share of a step when
the machine slows down. An environment variable sets its length, so that one folder serves all sizes.
"""

from collections.abc import Callable, Mapping, Sequence
from math import expm1
from pathlib import Path
from statistics import median

from dpbench.gate.take_round import SuiteRound

LOOPS = "DPBENCH_INJECTED_LOOPS"
"""The environment variable with the iterations of the loop in each forward. Not set, it is 0."""

_CALIBRATING_LOOPS = 20_000
_CALIBRATING_ROUNDS = (2, 6)
_CALIBRATED_SHARE = 0.1
_LEAST_SHARE = 0.01

_INJECTED = f'''

def _inject() -> None:
    import os

    loops, forward = int(os.environ.get("{LOOPS}", "0")), DataParallel.forward

    def slower(self, *inputs, **kwargs):
        for _ in range(loops):
            pass
        return forward(self, *inputs, **kwargs)

    DataParallel.forward = slower


_inject()
'''


def inject_slowdown(folder: Path) -> None:
    """Append the loop to `dpbench/parallel/__init__.py` in `folder`."""
    with (folder / "dpbench/parallel/__init__.py").open("a", encoding="utf-8") as file:
        file.write(_INJECTED)


def environment_of(loops: int) -> dict[str, str]:
    """The environment of a process whose loop has this length."""
    return {LOOPS: str(loops)}


def loops_per_step(
    names: Sequence[str], take: Callable[[Mapping[str, int], int], SuiteRound], progress: Callable[[str], object]
) -> dict[str, float]:
    """Return by benchmark how many iterations of the loop take as long as a step.

    `take` takes round number n with these loops injected. The first rounds measure roughly. The later ones inject about
    a tenth of a step, because slowdowns of that size are used.
    """
    loops = dict.fromkeys(names, float(_CALIBRATING_LOOPS))
    for rounds in _CALIBRATING_ROUNDS:
        shares: dict[str, list[float]] = {name: [] for name in names}
        injected = {name: round(count) for name, count in loops.items()}
        for number in range(rounds):
            progress(f"calibrating the injected slowdown, round {number + 1} of {rounds}")
            for name, ratio in take(injected, number).ratios.items():
                shares[name].append(expm1(ratio.contrast))
        per_step = {name: injected[name] / max(median(found), _LEAST_SHARE) for name, found in shares.items()}
        loops = {name: count * _CALIBRATED_SHARE for name, count in per_step.items()}
    return per_step
