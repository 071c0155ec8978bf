"""Did a figure of a pytest benchmark grow by more than its threshold allows?"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dpbench.judge.decision import Verdict, decide
from dpbench.judge.estimate import Estimate, log_distances, ratio_of_estimates
from dpbench.records.baseline import BaselineError, Figures

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


FIGURES = ("median", "minimum")
Threshold = Mapping[str, float]
"""How much `FIGURES` may grow, as a share: 0.05 is 5 %; a missing one has no limit."""


@dataclass(frozen=True)
class Growth:
    """Lines on figures that do not pass."""

    slower: tuple[str, ...]
    undecided: tuple[str, ...]


def parse_threshold(limits: Mapping[str, object]) -> Threshold:
    """Texts such as ``5%`` by the names of `FIGURES`; raise BaselineError.

    The mean has no threshold: one round on a busy machine moves it.
    """
    shares = {}
    for name, text in limits.items():
        match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
        if name not in FIGURES or match is None:
            raise BaselineError(
                f"dp_threshold: {name}={text!r}; allowed: median and minimum, each such as '5%' or '2.5%'"
            )
        shares[name] = float(match[1]) / 100
    if not shares:
        raise BaselineError("dp_threshold: has no limit; allowed: median and minimum, each such as '5%' or '2.5%'")
    return shares


def growth_over(now: Figures, then: Figures, threshold: Threshold) -> Growth:
    """By `judge/decision.py`, with a limit of 1 plus the threshold.

    A growth whose interval is above 1 and whose value is below the limit is sure enough to pass.
    """
    slower, undecided = [], []
    for name, share in threshold.items():
        new, old = getattr(now, f"{name}_s"), getattr(then, f"{name}_s")
        limit, ratio = 1 + share, ratio_of_estimates(new, old)
        low, high = ratio.ends
        verdict = decide(ratio.value, ratio.ends, same=1.0, limit=limit)
        figures = f"{_text(new)} after {_text(old)}"
        if verdict is Verdict.SLOWER:
            slower.append(f"{name} is {ratio.value:.3g} times the baseline's: {figures}; allowed: {limit:g} times")
        elif verdict is Verdict.UNDECIDED and low <= 1:
            undecided.append(
                f"{name} is {low:.3g} to {high:.3g} times the baseline's, so both 1 and the limit of {limit:g} are "
                f"possible: {figures}. {_widest(new, old)} varies more; take more rounds, or a quieter machine"
            )
    return Growth(tuple(slower), tuple(undecided))


def _widest(new: Estimate, old: Estimate) -> str:
    widths = [sum(log_distances(estimate) or (0.0, 0.0)) for estimate in (new, old)]
    return "This run" if widths[0] > widths[1] else "The baseline"


def _text(estimate: Estimate) -> str:
    low, high = estimate.ends
    return f"{estimate.value:.4g} s [{low:.4g}, {high:.4g}]"
