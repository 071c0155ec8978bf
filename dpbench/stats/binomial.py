"""The interval of a share that was counted."""


def clopper_pearson(found: int, of: int) -> tuple[float, float]:
    """The two-sided 95 % interval of a share, 0 to 1, after `found` hits in `of` trials.

    It is exact (Clopper and Pearson 1934). Imports scipy.
    """
    from scipy.special import betaincinv

    low = 0.0 if found == 0 else float(betaincinv(found, of - found + 1, 0.025))
    high = 1.0 if found == of else float(betaincinv(found + 1, of - found, 0.975))
    return low, high
