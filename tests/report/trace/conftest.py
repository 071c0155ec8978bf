"""The browser and the accessibility checker of the page's tests."""

from tests.report.page.conftest import axe, tab

__all__ = ["axe", "tab"]
