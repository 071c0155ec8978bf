"""The ratio of two estimates, with an interval. Pure."""

from math import exp, hypot, log

from dpbench.stats.rounds import Estimate


def ratio_of_estimates(head: Estimate, base: Estimate) -> Estimate:
    """Return head's value over base's, with a 95 % interval. Base's value must be above 0.

    There is no interval if either has none, or has an end that is not above 0.

    The two are taken as independent. The interval is made on logarithms. Its half-widths are the root sums of squares
    of the two intervals' half-widths. A value outside of its own interval widens that interval.

    Source: Donner and Zou 2012, "Closed-form confidence intervals for functions of the normal mean and standard
    deviation".
    """
    value = head.value / base.value
    of_head, of_base = log_distances(head), log_distances(base)
    if of_head is None or of_base is None:
        return Estimate(value, None, None)
    below, above = hypot(of_head[0], of_base[1]), hypot(of_head[1], of_base[0])
    return Estimate(value, value * exp(-below), value * exp(above))


def log_distances(found: Estimate) -> tuple[float, float] | None:
    """Return the distances from the value to the low and the high end, as logarithms of 0 or more, or None."""
    if found.low is None or found.high is None or min(found.value, found.low, found.high) <= 0:
        return None
    return max(0.0, log(found.value / found.low)), max(0.0, log(found.high / found.value))
