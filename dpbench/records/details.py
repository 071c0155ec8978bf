"""Where the counters of a step come from: what was done, and the line of code that did it. Pure.

    counter                      what                            line that did it                         value
    forward.python_calls         scatter (scatter_gather.py)     DataParallel.forward, module.py:120          4
    forward.operators            aten.clone.default              DataParallel.gather, module.py:170           1
    forward.copies.host->sim:0   1,024 bytes                     to_devices, transfer.py:42                   1

Values of one counter add up to the counter.
"""

from dpbench.text.frozen import Frozen

MOST_DETAILS = 20_000
"""The most details of a case that are sent. A case with more has none. `mlp/tiny` on four lanes has 300."""
LONGEST_TEXT = 120
"""Characters of a source line or a name. The rest is cut off."""


class Place(Frozen):
    """A line of code. `function` is its qualified name, and `text` the line without its indentation.

    `file` is relative to the commit's folder, or to a folder from which Python imports.
    """

    file: str
    line: int
    function: str
    text: str = ""


class Detail(Frozen):
    """The part of a counter that one line of code causes.

    `counter` is the full name. `what` is an operator, the size of a copy, a call of the host, or a Python function.
    Python functions have the `file` and `line` of their definition in `defined`. `place` is the line that did it; for
    a function the line of the call.
    """

    counter: str
    what: str
    place: Place
    value: int
    defined: Place | None = None
