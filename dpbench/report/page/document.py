"""A page as HTML. Every text is escaped, and the browser runs no script but the page's own.

Texts go through `_text`: it escapes what HTML reads, and replaces what terminals and bidirectional text would obey.
Data goes as JSON into a script element that is not run; ``<`` is written as an escape there, so it ends no element.
"""

import json
import webbrowser
from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path

from dpbench.analysis.answer import place
from dpbench.errors import WrongInputError
from dpbench.report.page.parts import ALL, MachinePart, Page, Panel, Section
from dpbench.report.page.theme import CONFIG
from dpbench.text.files import replace_text
from dpbench.text.outside import printable

_ASSETS = files("dpbench.report.page") / "assets"


def html(page: Page) -> str:
    """Return the whole document."""
    style, script, library = (_asset(name) for name in ("page.css", "page.js", "charts.js"))
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(library)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(page.title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            *_body(page),
            f'<script type="application/json" id="data">{_json(page)}</script>',
            f"<script>{library}</script>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _body(page: Page) -> Iterator[str]:
    yield f"<header><p class=brand>dpbench report</p><h1>{_text(page.title)}</h1></header>"
    yield "<main>"
    if page.notes:
        yield '<aside aria-label="Left out or summarised"><ul>'
        yield from (f"<li>{_text(note)}</li>" for note in page.notes)
        yield "</ul></aside>"
    if not page.machines and not page.sections:
        yield (
            "<p class=answer>There are no records.</p><p>Run <code>dpbench compare</code>, and give its file of "
            "records to <code>dpbench report</code>.</p>"
        )
    for machine in page.machines:
        yield from _machine(machine)
    for section in page.sections:
        yield from _section(section)
    if page.table.rows:
        yield from _raw_table()
    yield "</main>"
    yield '<footer><p id="status" role="status"></p></footer>'


def _machine(machine: MachinePart) -> Iterator[str]:
    yield f"<article><h2 class=machine>{_text(machine.name)}</h2>"
    yield f"<p class=answer>{_text(machine.summary)}</p>"
    if machine.main is not None:
        is_said = machine.summary == machine.main.answer
        texts = machine.main.sentences[1:] if is_said else machine.main.sentences
        yield "" if is_said else f"<h3>{_text(place(machine.main.setting))}</h3>"
        yield _list(texts)
    for other in machine.others:
        title = f"{place(other.setting)}: {other.answer}"
        yield f"<details class=setting><summary>{_text(title)}</summary>{_list(other.sentences[1:])}</details>"
    yield from _contents(machine.sections)
    for section in machine.sections:
        yield from _section(section)
    yield "</article>"


def _list(texts: Sequence[str]) -> str:
    return f"<ul class=reasons>{''.join(f'<li>{_text(text)}</li>' for text in texts)}</ul>"


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    links = [f'<a href="#{_text(section.id)}">{_text(section.title)}</a>' for section in sections]
    yield f'<nav aria-label="Sections">{" ".join(links)}</nav>'


def _section(section: Section) -> Iterator[str]:
    yield f'<section id="{_text(section.id)}"><h2>{_text(section.title)}</h2>'
    if section.answers:
        yield (
            f"<p class=answer>{_text(section.answers[0])}</p>" if len(section.answers) == 1 else _list(section.answers)
        )
    for panel in section.panels:
        yield from _panel(f"{section.id}-{panel.id}", panel)
    yield "</section>"


def _panel(name: str, panel: Panel) -> Iterator[str]:
    yield f'<figure id="{_text(name)}" data-panel="{_text(name)}">'
    if panel.is_folded:
        yield f"<details class=folded><summary>{_text(panel.title)}</summary><p>{_text(panel.text)}</p>"
        yield "<div class=table></div></details></figure>"
        return
    yield f"<figcaption><h3>{_text(panel.title)}</h3><p>{_text(panel.text)}</p></figcaption>"
    if len(panel.rows) > 1:
        select = f'<select data-choice="{_text(panel.choice)}"></select>'
        yield f"<label class=choice>{_text(panel.chosen)} {select}</label>"
    if panel.spec is not None:
        yield f'<div class=chart role=img aria-label="{_text(f"{panel.title}. {panel.text}")}"></div>'
        yield "<details><summary>The same as a table</summary><div class=table></div></details>"
    else:
        yield "<div class=table></div>"
    yield "</figure>"


def _raw_table() -> Iterator[str]:
    yield '<section id="cases"><h2>All cases</h2>'
    yield (
        '<div class=controls><label>Filter <input type="search" id="filter" placeholder="such as tuned cpu*4"></label>'
        '<button type="button" id="copy">Copy as CSV</button><span id="count" role="status"></span></div>'
    )
    yield '<div class="table scroll" id="raw" tabindex="0" role="region" aria-label="All cases"></div>'
    yield '<button type="button" id="more">Show more rows</button></section>'


def _json(page: Page) -> str:
    owners = [
        *((f"m{number}", section) for number, machine in enumerate(page.machines) for section in machine.sections),
        *(("", section) for section in page.sections),
    ]
    data = {
        "config": CONFIG,
        "panels": {
            f"{section.id}-{panel.id}": _panel_json(owner, panel)
            for owner, section in owners
            for panel in section.panels
        },
        "table": {
            "columns": [_column(*each) for each in page.table.columns.items()],
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
        "columns": [_column(*each) for each in panel.columns.items()],
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


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


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
