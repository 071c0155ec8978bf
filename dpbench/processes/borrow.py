"""Ask a child about benchmarks of asv and pytest, so that the parent imports no foreign code."""

from collections.abc import Sequence

from pydantic import ValidationError

from dpbench.errors import ReportedError
from dpbench.processes.interpret import ending, last_lines
from dpbench.processes.launch import Launcher, launch
from dpbench.processes.messages import BorrowedAnswer, BorrowedAnswers, BorrowedRequest, BorrowedTasks
from dpbench.processes.start import child_command

# Counts must be equal in every process, so sets of strings have one order.
BORROWER = ["env", "PYTHONHASHSEED=0", *child_command("dpbench.processes.child.borrowed")]


class BorrowingError(ReportedError):
    """The child failed as a whole. The text has its ending and its last lines."""


def ask_borrowed(
    requests: Sequence[BorrowedRequest], *, launch: Launcher = launch, timeout_s: float = 120.0
) -> tuple[BorrowedAnswer, ...]:
    """Return an answer for each request, in their order. `timeout_s` is the limit for each.

    Raises BorrowingError if the child fails as a whole.
    """
    if not requests:
        return ()
    request = BorrowedTasks(requests=tuple(requests), timeout_s=timeout_s)
    end = launch(BORROWER, request.model_dump_json(), timeout_s * (len(requests) + 1))
    try:
        return BorrowedAnswers.model_validate_json(end.record).answers
    except ValidationError:
        text = "\n".join([f"examining the benchmarks failed: {ending(end)}", *last_lines(end.tail)])
        raise BorrowingError(text) from None
