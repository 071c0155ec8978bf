from io import StringIO

import pytest
from rich.console import Console

from dpbench.report.comparison import comparisons_text, load_warning
from dpbench.results.compare import Comparisons, compare
from dpbench.results.record import Record
from dpbench.sweep.case import Case
from dpbench.sweep.plan import Skip
from tests.report.page.making_page import lane_records, made_case
from tests.results.making import ENVIRONMENT, METRICS, case, failed, ok, thin


def printed(found: Comparisons, width: int = 80, **options: object) -> str:
    console = Console(width=width, file=StringIO())
    console.print(comparisons_text(found, **options))
    return console.file.getvalue()


def test_the_answer_comes_before_the_table_of_each_setting() -> None:
    found = compare([*ON_CPU, *rounds(case("naive", "cpu*4"), 0.02, 0.02), *rounds(case("tuned", "cpu*4"), 0.01, 0.01)])
    lines = printed(found, 900).split("\n")
    answers = [number for number, line in enumerate(lines) if line.startswith("mlp/tiny, batch 64 on ")]
    assert [lines[number][:27] for number in answers] == [
        *["mlp/tiny, batch 64 on cpu*2"] * 2,
        *["mlp/tiny, batch 64 on cpu*4"] * 2,
    ]
    assert "Use tuned here" in lines[answers[2]]


def test_a_warning_comes_behind_the_first_answer() -> None:
    found = compare([*ON_CPU, *rounds(case("naive", "cpu*4"), 0.02, 0.02)])
    lines = printed(found, 900, warning=load_warning(0.93, 2)).split("\n")
    assert lines[2].startswith("Other processes kept 0.9 of 2 cores busy meanwhile, so")
    assert sum("Other processes" in line for line in lines) == 1


def test_an_eighty_column_terminal_needs_thirty_lines() -> None:
    lines = printed(
        compare(lane_records(), [Skip(made_case("torch_dp", "cpu*2", 64, "mlp/small"), "it needs an accelerator")])
    )
    assert len(lines.splitlines()) <= 28  # two more for the page and the rest


def test_details_add_devices_phases_and_the_ladder() -> None:
    found = compare(lane_records())
    short, long = printed(found), printed(found, with_details=True)
    assert long.startswith(short)
    for title in ("devices", "phases, ms", "ladder: "):
        assert title in long
        assert f"\n{title}" not in short


def test_too_few_samples_are_marked_and_not_ranked() -> None:
    thin_ones = [thin(case("tuned"), number, [0.001] * 19) for number in range(2)]
    text = printed(compare([*ON_CPU[:4], *thin_ones]), 120)
    assert rows(text)["tuned"][0] == "1.00 [1.00, 1.00] *"
    assert "*: a round has fewer than 20 samples or 1 s of them, so the row is not ranked" in text
    assert "tuned" not in text.partition("\n\n")[0]
    assert "*" not in printed(compare(ON_CPU), 120).replace("cpu*2", "")
    assert "too few samples to rank" in printed(compare(thin_ones), 120)


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each line, by the first cell."""
    lines = [line.split("  ") for line in text.splitlines() if line.startswith(" ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {line[0]: line[1:] for line in cells if len(line) > 1}


def rounds(case: Case, *times_s: float) -> list[Record]:
    return [ok(case, number, [time_s]) for number, time_s in enumerate(times_s)]


ON_CPU = [
    *rounds(case("single", "cpu"), 0.01, 0.01),
    *rounds(case("naive"), 0.02, 0.02),
    *rounds(case("tuned"), 0.0125, 0.0125),
]


def test_steps_per_sample_are_in_the_title_and_the_legend_if_there_are_several() -> None:
    several = case("tuned").model_copy(update={"steps_per_sample": 20})
    text = " ".join(printed(compare(rounds(several, 0.25, 0.25)), 200).split())
    assert "2 threads, seed 0, 20 steps per sample" in text
    assert "tuned 12.5 [12.5, 12.5]" in text
    assert "a time is a sample's divided by its steps" in text
    assert "per sample" not in printed(compare(ON_CPU), 200)


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_has_a_title_units_and_every_number(width: int) -> None:
    text = printed(compare(ON_CPU), width)
    assert "mlp/tiny, batch 64 on cpu*2, train, float32, random data, 2 threads, seed 0" in text
    assert rows(text) == {
        "variant": ["time, ms", "ratio to naive", "single", "items/s"],
        "single": ["10.0 [10.0, 10.0]", "0.500 [0.500, 0.500]", "100", "6,400"],
        "tuned": ["12.5 [12.5, 12.5]", "0.625 [0.625, 0.625]", "80.0", "5,120"],
        "naive": ["20.0 [20.0, 20.0]", "1.00", "50.0", "3,200"],
    }
    assert list(rows(text)) == ["variant", "single", "tuned", "naive"]  # the fastest first
    assert "2 threads, seed 0; 2 rounds" in " ".join(text.split())
    assert "% of single: one device's time for the whole batch" in " ".join(text.split())
    assert "% of limit" not in text


def test_a_legend_explains_only_what_the_tables_have() -> None:
    metrics = METRICS.model_copy(update={"peak_rss_bytes": 1 << 30})
    found = [each.model_copy(update={"metrics": metrics}) for each in ON_CPU]
    text = " ".join(printed(compare(found), 200, with_details=True).split())
    assert "as above" not in text
    assert not [word for word in ("PCIe", "NVLink", "Throttled") if word in text]
    assert "Host memory: all processes of the case." in text


def test_if_each_lane_has_a_device_the_percentage_is_of_the_limit() -> None:
    share = rounds(case("single", "cuda:0", batch=32), 0.0004, 0.0004)
    text = printed(compare([*rounds(case("torch_dp", "cuda*2"), 0.0008, 0.0008), *share]))
    assert rows(text)["torch_dp"] == ["800 [800, 800]", "1.00", "50.0", "80,000"]
    assert rows(text)["variant"] == ["time, us", "ratio to torch_dp", "limit", "items/s"]
    assert "% of limit: one device's time for its share alone" in " ".join(text.split())
    assert "% of single" not in text


def test_reasons_for_missing_numbers_are_below_the_table() -> None:
    records = [
        *ON_CPU,
        failed(case("ddp"), 0, "time_out", "no answer after 120 s"),
        failed(case("floor"), 0, "wrong_result", "off by 0.3"),
    ]
    text = printed(compare(records, [Skip(case("torch_dp"), "no accelerator")]), 120)
    assert list(rows(text)) == ["variant", "single", "tuned", "naive"]
    below = text.splitlines()
    assert "torch_dp: skipped: no accelerator" in below
    assert "ddp: time out: no answer after 120 s" in below
    assert "floor: wrong result: not the same computation: off by 0.3" in below


def test_failed_rounds_of_a_measured_case_are_reported() -> None:
    text = printed(compare([*ON_CPU, failed(case("tuned"), 2, "crashed", "signal 9")]), 120)
    assert "tuned: 1 of 3 rounds failed: crashed: signal 9" in text.splitlines()


def test_a_reason_is_one_line_without_control_characters_or_markup() -> None:
    reason = "signal 11\n[bold]at[/nothing] \x1b[2J\x07\u202ethe end"
    text = printed(compare([failed(case("ddp"), 0, "crashed", reason)]), 120)
    assert "ddp: crashed: signal 11 [bold]at[/nothing] [2J the end" in text.splitlines()


def test_one_round_has_no_interval_and_a_note() -> None:
    text = printed(compare([*rounds(case("naive"), 0.02), *rounds(case("tuned"), 0.01)]))
    assert rows(text)["tuned"] == ["10.0", "0.500", "-", "6,400"]
    assert "one round has no interval" in text
    assert "one round has no interval" not in printed(compare(ON_CPU))


def test_without_a_reference_there_is_no_ratio() -> None:
    text = printed(compare(rounds(case("tuned"), 0.01, 0.01)))
    assert rows(text)["variant"][1] == "ratio"
    assert rows(text)["tuned"][1] == "-"


def test_a_failed_single_device_baseline_and_differing_environments_are_reported() -> None:
    other = ENVIRONMENT.model_copy(update={"commit": "abc"})
    records = [
        *rounds(case("tuned", "cuda*2"), 0.01, 0.01),
        failed(case("single", "cuda:0", batch=32), 0, "out_of_memory", "3 GB"),
        ok(case("naive", "cuda*2"), 0, environment=other),
    ]
    text = printed(compare(records, allow_different=True), 200)
    assert (
        "single-device baseline mlp/tiny, batch 32 on cuda:0, train, float32, random data, 2 threads, seed 0: "
        "out of memory: 3 GB" in text.splitlines()
    )
    assert "records of different environments: commit is None / abc" in text.splitlines()


def test_training_on_real_data_shows_its_loss() -> None:
    trained = ok(case(), 0)
    digits = trained.model_copy(
        update={
            "case": trained.case.model_copy(update={"data": "digits"}),
            "metrics": trained.metrics.model_copy(update={"loss_first": 2.5, "loss_last": 0.5}),
        }
    )
    assert "2.50 to 0.500" in printed(compare([digits]))
    assert "loss" not in printed(compare([trained]))
