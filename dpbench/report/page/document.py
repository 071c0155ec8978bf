"""A page as HTML. Every text is escaped, and the browser runs no script but the page's own.

The template escapes texts, and replaces what terminals and bidirectional text would obey. Data goes as JSON into a
script element that is not run; ``<`` is an escape there, so it ends no element.
"""

import json
import webbrowser
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from dpbench.analysis.answer import place
from dpbench.errors import WrongInputError
from dpbench.report.page.parts import ALL, Page, Panel
from dpbench.text.files import replace_text
from dpbench.text.outside import printable

_ASSETS = files("dpbench.report.page") / "assets"


def html(page: Page) -> str:
    style, script, library = (_asset(name) for name in ("page.css", "page.js", "charts.js"))
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    template = Environment(autoescape=True, undefined=StrictUndefined, finalize=_printable, keep_trailing_newline=True)
    template.filters["place"] = place
    page_assets = {"policy": policy, "style": style, "script": script, "library": library, "data": _json(page)}
    return template.from_string(_asset("page.html.j2")).render(page=page, **page_assets)


def _printable(value: object) -> object:
    """Without control characters. What the template marks as safe is the page's own."""
    return printable(value) if type(value) is str else value


def _json(page: Page) -> str:
    owners = [
        *((f"m{number}", section) for number, machine in enumerate(page.machines) for section in machine.sections),
        *(("", section) for section in page.sections),
    ]
    data = {
        "config": json.loads(_asset("config.json")),
        "panels": {
            f"{section.id}-{panel.id}": _panel_json(owner, panel)
            for owner, section in owners
            for panel in section.panels
        },
        "table": {
            "columns": [_column(field, header) for field, header in page.table.columns.items()],
            "rows": [[_cell(cell) for cell in row] for row in page.table.rows],
        },
    }
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _panel_json(owner: str, panel: Panel) -> dict[str, object]:
    keys = [ALL] if ALL in panel.rows else list(panel.rows)
    return {
        "spec": panel.spec,
        "choice": f"{owner}-{panel.choice}",
        "first": keys.index(panel.first) if panel.first in keys else 0,
        "columns": [_column(field, header) for field, header in panel.columns.items()],
        "sets": [
            {
                "key": key,
                "label": printable(panel.labels.get(key, key)),
                "rows": [{name: _cell(cell) for name, cell in row.items()} for row in panel.rows[key]],
            }
            for key in keys
        ],
    }


def _column(field: str, header: str) -> dict[str, str]:
    return {"field": field, "header": printable(header)}


def _cell(value: object) -> object:
    return printable(value).replace("\n", " ") if isinstance(value, str) and not value.isprintable() else value


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


class PagePathError(WrongInputError):
    """One line with a path at which no page can be written."""


def write_page(page: Page, path: Path) -> None:
    """A page that was there is replaced. Raise PagePathError."""
    try:
        replace_text(path, html(page))
    except OSError as error:
        raise PagePathError(f"{path}: cannot be written: {error.strerror or error}; allowed: a file") from error


def open_page(path: Path) -> bool:
    """In the user's browser. Return False if there is none."""
    try:
        return webbrowser.open(path.resolve().as_uri())
    except webbrowser.Error:
        return False
