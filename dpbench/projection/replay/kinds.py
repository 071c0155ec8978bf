"""The kind of each operator. Pure."""

from dpbench.projection.described.machine import Kind

_BY_PART = (
    ("convolution", Kind.CONVOLUTION),
    ("bmm", Kind.BATCHED_MATMUL),
    ("addmm", Kind.MATMUL),
    ("mm", Kind.MATMUL),
    ("addmv", Kind.MATMUL),
    ("norm", Kind.NORM),
    ("softmax", Kind.SOFTMAX),
    ("embedding", Kind.INDEX),
    ("index", Kind.INDEX),
    ("gather", Kind.INDEX),
    ("scatter", Kind.INDEX),
    ("nll_loss", Kind.INDEX),
    ("copy", Kind.MOVE),
    ("cat", Kind.MOVE),
    ("clone", Kind.MOVE),
    ("_to_copy", Kind.MOVE),
    ("pool", Kind.REDUCTION),
    ("sum", Kind.REDUCTION),
    ("mean", Kind.REDUCTION),
)


def kind_of(operator: str) -> Kind:
    """Return the kind of an operator such as ``aten.addmm.default``; one that is not known moves bytes element by
    element.
    """
    name = operator.removeprefix("aten.").partition(".")[0]
    return next((kind for part, kind in _BY_PART if part in name), Kind.ELEMENTWISE)
