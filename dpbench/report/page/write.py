"""The file of a page, and the browser that opens it."""

import webbrowser
from pathlib import Path

from dpbench.errors import WrongInputError
from dpbench.report.page.document import html
from dpbench.report.page.parts import Page
from dpbench.results.files import replace_text


class PagePathError(WrongInputError):
    """One line with a path at which no page can be written."""


def write_page(page: Page, path: Path) -> None:
    """Write the page; a page that was there is replaced. Raise PagePathError."""
    try:
        replace_text(path, html(page))
    except OSError as error:
        raise PagePathError(f"{path}: cannot be written: {error.strerror or error}; allowed: a file") from error


def open_page(path: Path) -> bool:
    """Open the page in the user's browser. Return False if there is none."""
    try:
        return webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        return False
