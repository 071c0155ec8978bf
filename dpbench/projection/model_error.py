"""By how much the model itself is wrong: what published steps of `results/projection.md` say."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")
"""Written by ``python -m benchmarks.projection.validate``."""


@dataclass(frozen=True)
class ModelError:
    """Factors by which both ends of a 90 % interval of draws move out.

    `step_time` is for the time of a step. A part of this error is common to all variants on a machine, and cancels in
    a ratio of two. `ratio` is the rest: it is for the step of one scheme for several devices over that of one device.
    """

    step_time: float
    ratio: float

    def of_ratio(self, schemes: int) -> float:
        """Return the factor for a ratio of steps of which so many, 0 to 2, are of a scheme for several devices.

        The errors of two schemes are taken as independent. Too few published tables have two schemes to say otherwise.
        """
        return float(self.ratio ** (schemes**0.5))


EXACT = ModelError(1.0, 1.0)
"""For an interval that holds the draws alone."""


@cache
def model_error() -> ModelError:
    """Return the committed error."""
    return ModelError(**tomllib.loads(FILE.read_text()))
