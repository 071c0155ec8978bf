"""Does a disturbed run end as the undisturbed one did?

At an unchanged number of ranks every sum is taken in the same order, so the loss and all parameters are equal to the
last bit. Another number of ranks adds gradients in another order: the loss may differ, in float64 by at most 1e-10, in
float32 by at most 1e-4.
"""

from math import inf, isnan

from dpbench.elastic.elastic_record import ElasticEvent, ElasticSettings

_MOST_DIFFERENCE = {"float64": 1e-10, "float32": 1e-4}


def why_other_end(done: ElasticEvent, expected: ElasticEvent, settings: ElasticSettings) -> str | None:
    if is_same_to_the_bit(done, expected):
        return None
    difference = loss_difference(done, expected)
    losses = f"the loss is {done.loss:.6g}; that of the undisturbed run is {expected.loss:.6g}"
    losses += f"; the difference is {difference:.1e}"
    if not settings.is_world_changed:
        return losses if difference else f"the loss is equal, {done.loss:.6g}, but the parameters differ"
    most = _MOST_DIFFERENCE[settings.dtype]
    if difference <= most:
        return None
    return (
        f"{losses}, and {most:g} is allowed in {settings.dtype}. A model that uses the other items of its share, as "
        "batch norm does, depends on the number of ranks"
    )


def is_same_to_the_bit(done: ElasticEvent, expected: ElasticEvent) -> bool:
    return (done.loss, done.digest) == (expected.loss, expected.digest)


def loss_difference(done: ElasticEvent, expected: ElasticEvent) -> float:
    """The difference of the losses; infinity if one is not a number."""
    assert done.loss is not None
    assert expected.loss is not None
    difference = abs(done.loss - expected.loss)
    return inf if isnan(difference) else difference
