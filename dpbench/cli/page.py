"""The page's modules are imported when a page is made: they are a quarter of a command's imports."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.cli.options import Form, PageOutput
from dpbench.cli.terminal import complain, show_lines, warn
from dpbench.records.store import StoreError

if TYPE_CHECKING:
    from dpbench.report.page.inputs import PageInputs
    from dpbench.report.page.machines import MachineResults


def tell_page(path: Path, output: PageOutput) -> None:
    """Print a page's path, beside JSON and markdown to standard error, and open it if asked."""
    from dpbench.report.page.document import open_page

    if output.form is Form.TEXT:
        show_lines([f"page: {path}"])
    else:
        complain(f"page: {path}")
    if output.opens and not open_page(path):
        warn([f"{path} is written, but there is no browser to open it"])


def finish_page_beside(
    page_inputs: "PageInputs",
    make_path: Callable[[], Path],
    output: PageOutput,
    machines: "Sequence[MachineResults] | None" = None,
) -> None:
    """Only warn if the page cannot be written: the results are safe.

    A link is not followed: no user named the path, so it may lead to any file.
    """
    from dpbench.report.page.content import page_of
    from dpbench.report.page.document import PagePathError, write_page

    try:
        path = make_path()
        if path.is_symlink():
            raise PagePathError(f"{path}: cannot be written: a symbolic link; allowed: a regular file")
        write_page(page_of(page_inputs, machines), path)
        tell_page(path, output)
    except (PagePathError, StoreError) as error:
        warn([str(error)])
