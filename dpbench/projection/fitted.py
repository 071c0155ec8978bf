"""What published steps say about the sum: three constants and two errors, from `fitted.toml`."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")
"""Written by ``python -m benchmarks.projection.validate``."""


@dataclass(frozen=True)
class Fitted:
    """Constants from published steps.

    `speed_float32` and `speed_tf32` multiply the time that peaks and efficiencies give for one device, by format of its
    products. `beside` is the share by which computation is slower while collectives run beside it. An interval is a
    time over and times a factor: `step_error` for a step, `ratio_error` for a step over that of one device.
    """

    speed_float32: float = 1.0
    speed_tf32: float = 1.0
    beside: float = 0.0
    step_error: float = 1.0
    ratio_error: float = 1.0

    def error_of_ratio(self, schemes: int) -> float:
        """Return the factor for a ratio of steps of which so many are of a scheme for several devices.

        The errors of two schemes are taken as independent: too few published tables have two.
        """
        return float(self.ratio_error ** (schemes**0.5))


UNFITTED = Fitted()
"""The constants without published steps."""


@cache
def fitted() -> Fitted:
    """Return the committed constants."""
    return Fitted(**tomllib.loads(FILE.read_text()))
