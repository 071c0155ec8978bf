"""What `compare`, `sweep` and `report` print: each rule has a snapshot in every form."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from dpbench.analysis.answer import headline, load_warning, place
from dpbench.analysis.compare_variants import compare
from dpbench.analysis.phase_summary import Saving
from dpbench.cases.plan import Skip
from dpbench.records.readings import Reading, SkippedSteps
from dpbench.report.comparison import comparisons_json, comparisons_markdown, comparisons_text
from tests.analysis.test_ladder import TWO_MACHINES, on
from tests.records.making import ENVIRONMENT, METRICS, case, failed, ok, telemetry, thin
from tests.report.page.making_page import gpu_records, lane_records, made_case
from tests.report.snapshots import assert_as_before, printed


def rounds(case, *times_s, **metrics):
    records = [ok(case, number, [time_s]) for number, time_s in enumerate(times_s)]
    changed = [record.model_copy(update={"metrics": record.metrics.model_copy(update=metrics)}) for record in records]
    return changed if metrics else records


def of(variant, *times_s, **metrics):
    return rounds(case(variant), *times_s, **metrics)


ON_CPU = [*rounds(case("single", "cpu"), 0.01, 0.01), *of("naive", 0.02, 0.02), *of("tuned", 0.0125, 0.0125)]
TRAINED = ok(case(), 0)
FULL = {"forward": 0.5, "scatter": 0.1, "replicate": "no such method", "backward": 0.25, "optimiser": 0.002}
SLOW = {**FULL, "forward": 0.7, "collectives": 0.3, "hidden": 0.1}
REFUSED = Reading(reason="no permission")
LONG = "tuned[bucket_bytes=1048576,dispatch=threads]"


def devices(variant, *readings, **more):
    names = [f"cuda:{i}" for i in range(len(readings))]
    peaks = dict.fromkeys(names, Reading(value=2.0**30))
    return of(variant, 0.1, 0.1, telemetry=dict(zip(names, readings, strict=True)), peak_device_bytes=peaks, **more)


RULES = {
    "the answer comes before the table of each setting": [
        *ON_CPU,
        *rounds(case("naive", "cpu*4"), 0.02, 0.02),
        *rounds(case("tuned", "cpu*4"), 0.01, 0.01),
    ],
    "too few samples are marked and not ranked": [*ON_CPU, *(thin(case("ddp"), n, [0.001] * 19) for n in range(2))],
    "only too few samples": [thin(case("tuned"), number, [0.001] * 19) for number in range(2)],
    "steps per sample are in the title": rounds(case("tuned").model_copy(update={"steps_per_sample": 20}), 0.25, 0.25),
    "lanes with a device each have a limit": [
        *rounds(case("torch_dp", "cuda*2"), 0.0008, 0.0008),
        *rounds(case("single", "cuda:0", batch=32), 0.0004, 0.0004),
    ],
    "reasons for missing numbers are below the table": [
        *ON_CPU,
        failed(case("tuned"), 2, "crashed", "signal 9"),
        failed(case("ddp"), 0, "time_out", "no answer after 120 s"),
        failed(case("floor"), 0, "wrong_result", "off by 0.3"),
        failed(case("torch_dp"), 0, "crashed", "signal 11\n[bold]at[/nothing] \x1b[2J\x07\u202ethe end"),
    ],
    "one round has no interval": [*of("naive", 0.02), *of("tuned", 0.01)],
    "without a reference there is no ratio": of("tuned", 0.01, 0.01),
    "a failed baseline and differing environments": [
        *rounds(case("tuned", "cuda*2"), 0.01, 0.01),
        failed(case("single", "cuda:0", batch=32), 0, "out_of_memory", "3 GB"),
        ok(case("naive", "cuda*2"), 0, environment=ENVIRONMENT.model_copy(update={"commit": "abc"})),
    ],
    "real data has a loss": [
        TRAINED.model_copy(
            update={
                "case": TRAINED.case.model_copy(update={"data": "digits"}),
                "metrics": TRAINED.metrics.model_copy(update={"loss_first": 2.5, "loss_last": 0.5}),
            }
        )
    ],
    "phases of ranks and a phase longer than the step": [
        *of("naive", 0.4, 0.4, phases_s=FULL),
        *of("ddp", 2, 2, phases_s=FULL, phases_by_rank_s=(FULL, FULL, SLOW), rank_lag_s=(0.0, 0.01, 0.02)),
        *of("fsdp", 2, 2, phases_s=FULL, phases_by_rank_s=(FULL, FULL), rank_lag_s=(0.03, 0.0), skew_s=(0.01, 0.03)),
        *of(LONG, 2, 2, phases_s={**FULL, "replicate": 0.04}),
    ],
    "the busiest and the idlest device have a line each": [
        *devices("tuned", telemetry(80.0), telemetry(10.0), telemetry(40.0), peak_rss_bytes=3 << 30),
        *devices("naive", telemetry(80.0), telemetry(80.0)),
    ],
    "devices without a figure say why": [
        *devices("tuned", telemetry(80.0), telemetry(10.0, power_w=REFUSED, sm_busy_percent=REFUSED)),
        *devices("naive", "no\ndriver\x1b[2J", peak_rss_bytes=1 << 30),
    ],
    "one ladder has machine 0 and all machines": [
        *TWO_MACHINES[:2],
        TWO_MACHINES[2].model_copy(
            update={
                "metrics": METRICS.model_copy(update={"skew_s": (0.004,), "rank_lag_s": (0.0, 0.001, 0.004, 0.002)})
            }
        ),
        failed(on("fsdp", "cpu*4", machines=2), 0, "time_out", "late"),
    ],
    "a decided winner has its lead its limit and its bottleneck": gpu_records((256,), (8,)),
    "an undecided winner has its rivals": [
        *of("naive", 2, 2),
        *of("tuned", 1, 1.05, 0.95),
        *of("ddp", 1.05, 1.1, 1.0),
    ],
    "collectives and a phase with its moves": [
        *of("ddp", 4, 4, phases_s={"forward": 1.0, "backward": 3.0, "collectives": 2.0, "hidden": 0.5}),
        *of("naive", 8, 8),
    ],
    "a saving of less than a twentieth is none": [
        *of("tuned", 1, 1, phases_s={"forward": 1.0}),
        *of("naive", 1.04, 1.04, phases_s={"forward": 1.04}),
    ],
    "a saving of a sixth is named": [
        *of("tuned", 1, 1, phases_s={"forward": 1.0}),
        *of("naive", 1.2, 1.2, phases_s={"forward": 1.2}),
    ],
    "equal schemes are not worth more rounds": [*of("tuned", 1, 1.1, 0.9), *of("naive", 1, 1.1, 0.9)],
    "one device may be faster": [
        *of("tuned", 1, 1.05, 0.95),
        *of("naive", 3, 3.1, 3),
        *rounds(case("single", "cpu"), 1, 1.05, 1.1),
    ],
    "the least work is not undercut for sure": [*of("tuned", 0.8, 1.2, 0.9), *of("floor", 1, 1, 1)],
    "without times the outcomes are the answer": [failed(case("tuned"), 0, "crashed", "it fell over")],
    "one device is faster for sure": lane_records(),
}


IN_EVERY_FORM = (
    "lanes with a device each have a limit",
    "reasons for missing numbers are below the table",
    "one round has no interval",
    "real data has a loss",
    "phases of ranks and a phase longer than the step",
    "devices without a figure say why",
    "one ladder has machine 0 and all machines",
)


def compared(records):
    return compare(records, [Skip(case("torch_dp"), "no accelerator")], allow_different=True)


@pytest.mark.parametrize("rule", RULES)
def test_what_is_printed_is_as_before(rule):
    comparisons = compared(RULES[rule])
    name = rule.replace(" ", "-")
    assert_as_before(f"compare/{name}.txt", printed(comparisons_text(comparisons, with_details=True), 100))
    if rule in IN_EVERY_FORM:
        assert_as_before(f"compare/{name}.md", comparisons_markdown([("", comparisons)]))
        assert_as_before(f"compare/{name}.json", comparisons_json(comparisons))


@pytest.mark.parametrize("rule", RULES)
def test_no_number_of_the_table_is_lost_in_a_narrow_terminal(rule):
    wide, narrow = (printed(comparisons_text(compared(RULES[rule]), with_details=True), width) for width in (900, 60))
    assert {word for word in wide.split() if word[0].isdigit()} <= set(narrow.replace("\n", " ").split())
    commands = [line for line in narrow.splitlines() if line.startswith("  dpbench compare ")]
    assert all("budget" in line for line in commands)  # whole, so that it can be copied
    assert not {"\x1b", "\x07", "\u202e"} & set(narrow)


def test_a_warning_comes_behind_the_first_answer():
    lines = printed(comparisons_text(compare(ON_CPU), warning=load_warning(0.93, 2)), 900).split("\n")
    assert lines[2].startswith("Other processes kept 0.9 of 2 cores busy meanwhile, so")


SHORT = [rule for rule, records in RULES.items() if max(len(record.case.variant) for record in records) <= 20]


@pytest.mark.parametrize("rule", SHORT)
def test_a_setting_needs_twelve_lines_of_eighty_columns(rule):
    comparisons = compared(RULES[rule])
    first = comparisons.comparisons[0]
    one, two = (
        len(printed(comparisons_text(replace(comparisons, comparisons=(first,) * times)), 80).splitlines())
        for times in (1, 2)
    )
    assert two - one <= 12 + max(0, len(first.rows) - 5)


def test_what_eight_settings_share_is_said_once():
    skip = Skip(made_case("torch_dp", "cpu*2", 64, "mlp/small"), "it needs an accelerator")
    comparisons = compare(lane_records(), [skip])
    text = printed(comparisons_text(replace(comparisons, comparisons=comparisons.comparisons[:1] * 8)), 80)
    assert text.count("it needs an accelerator") == text.count("threads, seed 0") == 1


def test_details_follow_what_is_shown_without_them():
    comparisons = compare(lane_records())
    assert printed(comparisons_text(comparisons, with_details=True)).startswith(printed(comparisons_text(comparisons)))


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_table_is_wider_than_the_terminal(width):
    text = printed(comparisons_text(compare(gpu_records((64,), (2, 8))), with_details=True), width)
    assert all(cell_len(line) <= width for line in text.splitlines() if not line.startswith("  dpbench compare "))


def test_every_case_is_in_the_json_once_with_single_device_baselines():
    share = [ok(case("single", "cuda:0", batch=32), 0, [0.01])]
    records = [*ON_CPU, *rounds(case("naive", "cpu*4"), 0.4, 0.4), ok(case("tuned", "cuda*2"), 0, [0.02]), *share]
    cases = comparisons_json(compare(records))["cases"]
    assert sorted(one["id"] for one in cases) == sorted({record.case.id for record in records})
    single = next(one for one in cases if one["variant"] == "single" and one["devices"] == ["cpu"])
    assert (single["ratio"], single["percent_of_single"]) == (None, None)


def test_a_row_with_too_few_samples_is_not_cited():
    few = [thin(case("naive"), number, [0.5] * 2) for number in range(3)]
    (only,) = compare([*of("tuned", 1, 1.05, 0.95), *of("ddp", 3, 3.1, 3), *few]).comparisons
    assert "naive" not in " ".join(headline(only).sentences)


@pytest.mark.parametrize(("variant", "says"), [("tuned", "left to gain"), ("tuned[graphs=true]", "has no graphs")])
def test_graphs_may_be_faster_than_the_limit(variant, says):
    records = [*rounds(case(variant, "cuda*2"), 0.01, 0.01), *rounds(case("single", "cuda:0", batch=32), 0.02, 0.02)]
    (only,) = compare(records).comparisons
    assert says in headline(only).limit


@pytest.mark.parametrize("devices", ["cuda*8", "cuda:1+cuda:2", "cpu*2"])
def test_devices_are_named_shortly(devices):
    assert place(made_case("tuned", devices, 64)) == f"convnet/small, batch 64 on {devices}"


def test_a_whole_phase_is_told_from_its_parts():
    names = ("forward", "backward", "optimiser", "replicate", "loss")
    assert [Saving(name, 1, 2).is_whole for name in names] == [True, True, False, False, False]


def test_seconds_of_compiling_are_in_the_details_and_no_row_of_a_time():
    compiled = case("tuned[compile=default]")
    spans_s = (40.0, 2.0)
    records = [
        ok(compiled, number, [0.1]).model_copy(update={"metrics": METRICS.model_copy(update={"compile_s": span_s})})
        for number, span_s in enumerate(spans_s)
    ]
    compared = compare([*records, *(ok(case("single[compile=default]", "cpu"), number, [0.1]) for number in (0, 1))])
    text = printed(comparisons_text(compared, with_details=True), 200)
    assert "in the longest round: tuned[compile=default] 40.0 s" in text
    assert "100 % is single[compile=default], the fastest single" in text
    assert "compiling" not in printed(comparisons_text(compared), 200)
    assert [row["compile_s"] for row in comparisons_json(compared)["cases"]] == [None, 40.0]


def test_skipped_steps_and_stages_are_in_the_details_over_all_rounds():
    skipped = [SkippedSteps(skipped=number, steps=100) for number in (3, 1)]
    stages = [{"start": 0.25, "warm-up": seconds} for seconds in (2.0, 4.0)]
    records = [
        ok(case("tuned"), number, [0.1]).model_copy(
            update={"metrics": METRICS.model_copy(update={"skipped_steps": steps, "stages_s": spans_s})}
        )
        for number, (steps, spans_s) in enumerate(zip(skipped, stages, strict=True))
    ]
    compared = compare(records)
    text = printed(comparisons_text(compared, with_details=True), 200)
    assert "because their gradients overflowed, of all: tuned 4 of 200" in text
    assert "a case's process beside its samples, medians: start 0.250 s, warm-up 3.00 s" in text
    assert [row["skipped_steps"] for row in comparisons_json(compared)["cases"]] == ["4 of 200"]
