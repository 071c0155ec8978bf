"""Draw the README's pictures from committed records: results/pictures/*.svg. `make pictures` runs it.

    results/pictures/records.jsonl    sweep benchmarks/sweeps/pictures.toml, on a quiet machine
    results/pictures/projection.json  project transformer/small --machine 4xV100-sxm --batch 32 --json
              │
    the page's charts ──> Vega in a headless Chromium ──> SVG, light and dark in one file

The same records give the same files: the width of a text is computed from its letters, not measured with the fonts of
the machine that draws. A new picture is one more entry in `pictures`.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from dpbench.cases.variants import VariantName
from dpbench.records.record import Environment, Record
from dpbench.report.page.charts.time_charts import (
    COMMON_ERROR,
    SINGLE_IS_A_SHARE,
    ablation,
    projections,
    throughput_here,
)
from dpbench.report.page.content import MakePanel
from dpbench.report.page.inputs import PageInputs, read_inputs
from dpbench.report.page.machines import by_machine
from dpbench.report.page.parts import DataRow, Panel

FOLDER = Path(__file__).parents[2] / "results/pictures"
_ASSETS = Path(__file__).parents[2] / "dpbench/report/page/assets"
_FILES = ("records.jsonl", "projection.json")
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_WIDTH_PX = 760
_MARGIN_PX = 16
_LADDER = (
    *(VariantName.SINGLE, VariantName.NAIVE, VariantName.FLOOR),
    *(VariantName.TUNED, VariantName.DDP, VariantName.FSDP),
)
# The mean width of a letter of a sans-serif font, over its size.
_DRAW = """
vega.textMetrics.width = (item, text) => Math.round(0.58 * String(text ?? "").length * vega.textMetrics.height(item));
const draw = async ({ spec, config }) => {
  const compiled = vegaLite.compile(spec, { config }).spec;
  const runtime = vega.parse(compiled, null, { ast: true });
  return new vega.View(runtime, { expr: vega.expressionInterpreter, renderer: "none" }).toSVG();
};
Promise.all(JSON.parse(document.getElementById("charts").textContent).map(draw)).then((found) => {
  document.body.textContent = "BEGIN" + JSON.stringify(found) + "END";
});
"""


class PictureError(Exception):
    """One line."""


@dataclass(frozen=True)
class Chart:
    """A panel of the page as a picture: the rows of one key, a title and what stands below it."""

    panel: Panel
    key: str
    title: str
    subtitle: Sequence[str]

    @property
    def json(self) -> dict[str, Any]:
        """With data and title, and the settings of all charts."""
        assert self.panel.spec is not None
        title = {"text": self.title, "subtitle": list(self.subtitle), "anchor": "start", "offset": 14}
        rows = list(self.panel.rows[self.key])
        whole = {**_with_used_colours(self.panel.spec, rows), "width": _WIDTH_PX - 2 * _MARGIN_PX, "title": title}
        config = json.loads((_ASSETS / "config.json").read_text())
        style = {
            "color": "var(--ink)",
            "fontSize": 16,
            "fontWeight": 600,
            "subtitleColor": "var(--muted)",
            "subtitleFontSize": 12,
            "subtitleLineHeight": 17,
            "subtitlePadding": 6,
        }
        return {
            "spec": {**whole, "data": {"values": rows}},
            "config": {**config, "padding": _MARGIN_PX, "title": style, "axis": {**config["axis"], "labelLimit": 300}},
        }


def pictures(folder: Path) -> dict[str, str]:
    """SVG by file name, without pictures whose file of records is missing. Raise PictureError."""
    inputs = read_inputs([path for name in _FILES if (path := folder / name).exists()])
    charts = {"ladder.svg": _ladder(inputs), "ablation.svg": _ablation(inputs)} if inputs.records else {}
    charts |= {"projection.svg": _projection(inputs)} if inputs.projections else {}
    if not charts:
        raise PictureError(f"{folder}: holds neither {' nor '.join(_FILES)}")
    return dict(zip(charts, _drawn(charts.values()), strict=True))


def _ladder(inputs: PageInputs) -> Chart:
    records = [record for record in inputs.records if str(record.case.variant) in _LADDER]
    panel, place = _panel(throughput_here, records)
    below = "The upright mark is one device's speed with the whole batch, because the lanes share one CPU."
    return Chart(panel, panel.first, f"Items a second by scheme: {place}", [below, _circumstances(records)])


def _ablation(inputs: PageInputs) -> Chart:
    records = [record for record in inputs.records if record.case.variant.name is VariantName.TUNED]
    panel, place = _panel(ablation, records)
    below = "Each row is tuned with one technique changed. Right of 1 the change costs time. Lines: 95 % intervals."
    return Chart(panel, panel.first, f"What each technique is worth: {place}", [below, _circumstances(records)])


def _projection(inputs: PageInputs) -> Chart:
    panel = projections(inputs.projections, ())
    if panel is None:
        raise PictureError("projection.json: has no projected time")
    key = next(iter(panel.rows))
    rows = [row for row in panel.rows[key] if row["ms"] is not None]
    shown = Panel(panel.id, panel.title, panel.text, panel.columns, {key: rows}, panel.spec)
    below = (
        "Projected from a description, not measured on the machine. Lines: how far published steps are from their sums."
    )
    return Chart(shown, key, f"Projected step: {panel.labels[key]}", [below, COMMON_ERROR, SINGLE_IS_A_SHARE])


def _panel(make: MakePanel, records: Sequence[Record]) -> tuple[Panel, str]:
    """The chart of these records and the name of its setting. Raise PictureError."""
    machines = by_machine(records)
    panel = make(machines[0]) if len(machines) == 1 else None
    if panel is None:
        raise PictureError(f"records.jsonl: lacks variants of {make.__name__}, or is of {len(machines)} machines")
    return panel, machines[0].labels[panel.first]


def _with_used_colours(spec: Mapping[str, Any], rows: Sequence[DataRow]) -> dict[str, Any]:
    """With a legend of those names only that the rows have, as the page does."""
    copy = deepcopy(dict(spec))
    for layer in copy["layer"]:
        colour = layer["encoding"].get("color")
        if isinstance(colour, dict) and "domain" in colour.get("scale", {}):
            used = {row[colour["field"]] for row in rows}
            pairs = zip(colour["scale"]["domain"], colour["scale"]["range"], strict=True)
            kept = [pair for pair in pairs if pair[0] in used]
            colour["scale"] = {"domain": [name for name, _ in kept], "range": [shade for _, shade in kept]}
            colour["legend"] = None if len(kept) == 1 else colour.get("legend", {})
    return copy


def _circumstances(records: Sequence[Record]) -> str:
    """Machine, versions, rounds and day."""
    environment: Environment = next(record.environment for record in records if record.environment is not None)
    days = sorted({record.started_at[:10] for record in records})
    rounds = len({record.round for record in records})
    return (
        f"{environment.cpu_model}, {environment.cores} cores, torch {environment.torch}, Python {environment.python}, "
        f"{rounds} rounds, {days[-1]}"
    )


def _drawn(charts: Iterable[Chart]) -> list[str]:
    text = json.dumps([chart.json for chart in charts]).replace("<", "\\u003c")
    library = (_ASSETS / "charts.js").read_text()
    page = (
        f'<!doctype html><meta charset="utf-8"><body><script type="application/json" id="charts">{text}</script>'
        f"<script>{library}</script><script>{_DRAW}</script></body>"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "charts.html"
        path.write_text(page)
        dom = _dom(path)
    answer = re.search(r"BEGIN(.*)END", dom, re.DOTALL)
    if answer is None:
        raise PictureError("Chromium drew nothing; open its console with the page that this script makes")
    colours = _colours((_ASSETS / "page.css").read_text())
    return [_finished(svg, colours) for svg in json.loads(unescape(answer[1]))]


def _dom(path: Path) -> str:
    """After its scripts ran."""
    browser = next((program for name in _CHROMIUM if (program := shutil.which(name))), None)
    if browser is None:
        raise PictureError(f"no browser is on PATH; allowed: {', '.join(_CHROMIUM)}")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    command = [browser, *flags, f"--user-data-dir={path.parent}", "--virtual-time-budget=20000", "--dump-dom"]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise PictureError(f"{browser} ended with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout


def _colours(style: str) -> dict[str, tuple[str, str]]:
    """The light and the dark colour of each variable of the page's style."""
    light, _, dark = style.partition("prefers-color-scheme: dark")
    schemes = [dict(re.findall(r"--(\w+): (#\w+)", part)) for part in (light, dark)]
    return {name: (colour, schemes[1][name]) for name, colour in schemes[0].items()}


def _finished(svg: str, colours: Mapping[str, tuple[str, str]]) -> str:
    """On a card of its own, with literal colours and rules that replace them if the reader's is dark."""
    svg = re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]][0], svg)
    svg = re.sub(r"\d+\.\d{4,}", lambda match: f"{float(match[0]):.3f}", svg)  # browsers differ in the last digits
    rules = {
        (kind, light): f'[{kind}="{light}"]{{{kind}:{dark}}}'
        for light, dark in colours.values()
        for kind in ("fill", "stroke")
        if f'{kind}="{light}"' in svg
    }
    paper, edge = colours["card"], colours["line"]
    dark = f".card{{fill:{paper[1]};stroke:{edge[1]}}}{''.join(rules.values())}"
    style = f"<style>@media (prefers-color-scheme:dark){{{dark}}}</style>"
    card = f'<rect class="card" width="100%" height="100%" rx="10" fill="{paper[0]}" stroke="{edge[0]}"/>'
    head, _, rest = svg.partition(">")
    return f"{head}>{style}{card}{rest}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder of the records and of the pictures")
    options = parser.parse_args()
    folder = options.folder
    try:
        drawn = pictures(folder)
    except PictureError as error:
        sys.exit(f"pictures: {error}")
    for name, svg in drawn.items():
        (folder / name).write_text(svg)
        print(f"{folder / name}: {len(svg):,} bytes")


if __name__ == "__main__":
    main()
