"""The charts' specifications and rows, without a browser."""

import json
import re

import pytest

from dpbench.analysis.compare_variants import compare
from dpbench.judge.estimate import Estimate
from dpbench.report.page.charts.device_charts import phases, rounds_along
from dpbench.report.page.charts.time_charts import ratio_fields, ratios, throughput
from dpbench.report.page.content import page_of
from dpbench.report.page.document import _asset
from dpbench.report.page.drawing import axis_of, drawn, shaped
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import MOST_SETTINGS, by_environment
from dpbench.report.page.plain_tables import links, raw_table
from tests.report.page.making_page import failed_record, gpu_records, lane_records
from tests.report.page.test_pages import counted

SETTING = "convnet/small|b256|cuda:0+cuda:1+cuda:2+cuda:3+cuda:4+cuda:5+cuda:6+cuda:7|train|float32|random|t2|s0"
(GPU_MACHINE,) = by_environment(gpu_records())
(LANES_MACHINE,) = by_environment(lane_records())


def first(panel):
    return panel.rows[panel.first]


def test_a_ratio_far_from_the_others_stands_at_the_end_of_the_chart():
    near = [Estimate(1.0, 0.5, 1.5), Estimate(2.0, 1.0, 4.0), Estimate(1.2, None, None)]
    *drawn, far = ratio_fields([*near, Estimate(31.0, 17.0, 95.0)])
    assert far == {"ratio": 4, "low": 4, "high": 4, "label": "31.0 ▸"}
    assert [(row["low"], row["high"], row["label"]) for row in drawn] == [
        *((0.5, 1.5, "1.00"), (1, 4, "2.00"), (1.2, 1.2, "1.20")),
    ]


def test_the_reference_is_at_one_however_small_the_other_ratios_are():
    small = [
        Estimate(0.02, 0.01, 0.03),
        Estimate(1.0, None, None),
        Estimate(0.03, None, None),
        Estimate(0.06, None, None),
    ]
    assert ratio_fields(small)[1] == {"ratio": 1, "low": 1, "high": 1, "label": "1.00"}
    *_, far = ratio_fields([*small, Estimate(7.0, None, None)])
    assert far == {"ratio": 1, "low": 1, "high": 1, "label": "7.00 ▸"}


def test_the_text_says_of_a_cut_only_where_there_is_one():
    sentence = "A dot with ▸ is beyond the chart."
    slow = [record.model_copy(update={"samples_s": [99.0] * len(record.samples_s)}) for record in lane_records()]
    mixed = [b if str(a.case.variant) == "ddp" else a for a, b in zip(lane_records(), slow, strict=True)]
    (machine,) = by_environment(mixed)
    assert sentence in ratios(machine).text
    assert sentence not in ratios(LANES_MACHINE).text


def test_panels_show_the_setting_with_most_variants_devices_and_items_first():
    assert ratios(GPU_MACHINE).first == SETTING
    panel = throughput(GPU_MACHINE)
    assert panel.first in panel.rows
    assert panel.labels[panel.first] == "strong: batch 256 on all devices"


def test_phases_add_up_and_a_variant_without_parts_has_whole_phases():
    rows = first(phases(GPU_MACHINE))
    for variant in ("torch_dp", "tuned", "ddp"):
        assert sum(row["percent"] for row in rows if row["variant"] == variant) == pytest.approx(100, abs=0.5)
    assert [row["part"] for row in rows if row["variant"] == "ddp"] == [
        "forward + moves",
        "backward + moves",
        "optimiser",
    ]


def test_a_long_bar_is_cut_where_the_others_can_still_be_read():
    records = lane_records()
    slow = [
        record.model_copy(update={"metrics": record.metrics.model_copy(update={"phases_s": {"forward": 9.0}})})
        if str(record.case.variant) == "naive"
        else record
        for record in records
    ]
    (machine,) = by_environment(slow)
    panel = phases(machine)
    rows = first(panel)
    (cut,) = (row for row in rows if row["variant"] == "naive")
    assert cut["label"] == "9,000 ms ▸ ≠"  # its forward is longer than its step too
    assert cut["shown"] == 9000
    assert cut["to"] == cut["end"] == max(row["to"] for row in rows) < 9000
    assert "the median is cut, " in panel.text
    assert "the median is cut, " not in phases(LANES_MACHINE).text
    assert "A bar with ≠ has a phase that took longer than the whole step" in panel.text
    assert "≠" not in phases(LANES_MACHINE).text


def test_too_many_dots_are_thinned_alike_for_each_variant(monkeypatch):
    monkeypatch.setattr("dpbench.report.page.charts.device_charts._MOST_POINTS", 30)
    (machine,) = by_environment(lane_records(rounds=12))
    panel = rounds_along(machine)
    counts = {name: [row["round"] for row in first(panel) if row["variant"] == name] for name in ("naive", "tuned")}
    assert counts == {"naive": [0, 2, 4, 6, 8, 10], "tuned": [0, 2, 4, 6, 8, 10]}
    assert "only some are shown" in panel.text
    assert "only some are shown" not in rounds_along(LANES_MACHINE).text


def test_bytes_by_link_have_a_row_for_each_direction():
    (machine,) = by_environment(
        lane_records(), counts=[counted(sim0_to_sim1=2**20, sim1_to_sim0=2**19, sim0_to_sim0=1)]
    )
    (rows,) = links(machine).rows.values()
    sent = [(row["source"], row["target"], row["shown"], row["copies"]) for row in rows]
    assert sent == [("sim:0", "sim:1", "2.00 MiB", 2), ("sim:1", "sim:0", "1.00 MiB", 2)]
    assert links(LANES_MACHINE) is None


def test_a_text_of_a_record_is_no_name_in_a_chart():
    columns = {"a": "$rows"}
    x = {"title": "$x", "scale": {"domain": ["$columns", "$none"]}}
    spec = drawn("lines", columns, x=x, value=axis_of("$a", "$b"), colour={"field": "$y"})
    (_, line, *_) = spec["layer"]
    assert line["encoding"]["x"] == x
    assert (line["encoding"]["y"]["field"], line["encoding"]["y"]["title"]) == ("$a", "$b")
    assert line["encoding"]["color"] == {"field": "$y"}
    assert spec["layer"][-1]["encoding"]["tooltip"] == [{"field": "a", "title": "$rows"}]
    with pytest.raises(KeyError, match="value"):
        drawn("lines", columns, x={}, colour={})


def test_a_section_without_data_is_left_out():
    page = page_of(PageInputs(lane_records()))
    ids = [section.id for section in page.machines[0].sections]
    assert ids == ["m0-ratios", "m0-scaling", "m0-phases", "m0-devices", "m0-environment", "m0-words"]
    full = page_of(PageInputs([*gpu_records(), failed_record("naive", "out of memory")]))
    assert [section.id for section in full.machines[0].sections] == [
        *("m0-ratios", "m0-scaling", "m0-phases", "m0-ablation", "m0-devices"),
        *("m0-outcomes", "m0-environment", "m0-words"),
    ]


def test_unlike_environments_are_parts_of_their_own():
    page = page_of(PageInputs([*lane_records(), *gpu_records((64,), (2,))]))
    names = [machine.name for machine in page.machines]
    assert names == ["laptop: a CPU", "gpu-host: NVIDIA H100"]
    assert {row[0] for row in page.table.rows} == set(names)
    assert "not compared with each other" in page.notes[0]


def test_machines_of_one_host_have_their_versions_in_the_table_too():
    newer = [
        record.model_copy(update={"environment": record.environment.model_copy(update={"torch": "3.0"})})
        for record in lane_records(rounds=1)
    ]
    table = raw_table(by_environment([*lane_records(rounds=1), *newer]))
    assert {row[0] for row in table.rows} == {"laptop: a CPU, torch 2.13.0+cpu", "laptop: a CPU, torch 3.0"}


def test_many_settings_are_summarised_and_the_page_says_so():
    page = page_of(PageInputs(gpu_records(range(8, 8 * (MOST_SETTINGS + 2), 8), (2,), rounds=2)))
    for panel in page.machines[0].sections[0].panels:
        assert len(panel.rows) == MOST_SETTINGS
    assert f"show {MOST_SETTINGS} of {MOST_SETTINGS + 1} settings" in page.notes[0]


def test_every_colour_of_a_chart_is_one_of_the_style_sheet():
    page = page_of(PageInputs([*gpu_records(), failed_record("naive", "out of memory")]))
    used = set(
        re.findall(
            r"var\((--\w+)\)",
            json.dumps([panel.spec for section in page.machines[0].sections for panel in section.panels]),
        )
    )
    style = _asset("page.css")
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")
    assert used
    assert all(f"{name}:" in light and f"{name}:" in dark for name in used)


def test_tables_name_only_fields_that_their_rows_have():
    page = page_of(PageInputs([*gpu_records(), failed_record("naive", "out of memory")]))
    for panel in (panel for section in page.machines[0].sections for panel in section.panels):
        for rows in panel.rows.values():
            assert all(field in row for row in rows for field in panel.columns), panel.id


def test_variants_of_one_colour_have_different_shapes():
    colours = [("a", "red"), ("b", "blue"), ("c", "red"), ("d", "red")]
    scale = shaped("variant", colours)["scale"]
    assert scale["domain"] == ["a", "b", "c", "d"]
    looks = list(zip((colour for _, colour in colours), scale["range"], strict=True))
    assert len(set(looks)) == len(looks)


def test_step_times_that_differ_widely_are_on_a_logarithmic_axis():
    records = lane_records()
    slow = records[0].model_copy(update={"samples_s": tuple(20 * sample_s for sample_s in records[0].samples_s)})
    for made, kind in ((records, None), ([slow, *records[1:]], "log")):
        (machine,) = by_environment(made)
        assert rounds_along(machine).spec["layer"][0]["encoding"]["y"]["scale"].get("type") == kind


def test_records_of_one_machine_are_not_compared_again():
    compared = compare(lane_records())
    (machine,) = by_environment(lane_records(), compared=compared)
    assert machine.compared is compared
    assert all(
        one.compared is not compared for one in by_environment([*lane_records(), *gpu_records()], compared=compared)
    )
