"""Counts as tables and as JSON."""

import json

from rich.console import Console

from dpbench.report.comparison import comparisons_json
from dpbench.report.counts_table import counts_json, counts_text
from dpbench.results.compare import compare
from dpbench.results.counts import CountRecord, Counts, Dependencies, Phase, PhaseCounts, Traffic
from dpbench.results.record import Environment, Outcome
from dpbench.sweep.case import Case
from dpbench.sweep.plan import Skip

ENVIRONMENT = Environment(
    hostname="fake", os="Linux", python="3.11.7", torch="2.13.0", cpu_model="fake", cores=2, dpbench="0"
)


def case(variant, devices=("sim:0", "sim:1")):
    return Case(variant=variant, workload="mlp/tiny", batch=8, devices=devices, threads=1)


def simulated(variant, operators, ready=0):
    copies = {"host->sim:0": Traffic(count=9, size_bytes=90), "sim:0->sim:1": Traffic(count=2, size_bytes=20)}
    forward = PhaseCounts(operators=operators, copies=copies, peak_bytes={"sim:0": 512, "sim:1": 1024})
    backward = PhaseCounts(operators=1000, copies={"sim:1->sim:0": Traffic(count=3, size_bytes=30)}, peak_bytes={})
    depends = Dependencies(
        reduced_bytes=30,
        ready_at_half_bytes=ready,
        startable_at_half_bytes=0,
        issued_at_half_bytes=0,
        operators_before_issue=0,
        issue_swaps=0,
        broadcast_bytes=20,
        before_first_layer_bytes=20,
    )
    counts = Counts(phases={Phase.FORWARD: forward, Phase.BACKWARD: backward}, dependencies=depends)
    return CountRecord(case=case(variant), outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT)


def calls(variant, number):
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(python_calls=number)})
    on_cpu = case(variant, ("cpu", "cpu"))
    return CountRecord(case=on_cpu, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT)


RECORDS = [
    calls("tuned", 50),
    simulated("tuned", 500, ready=15),
    simulated("torch_dp", 1000),
    simulated("naive", 1000),
    calls("naive", 200),
]
FAILED = CountRecord(case=case("floor"), outcome=Outcome.CRASHED, reason="killed by SIGSEGV\nlast words")


def rows(*records, skipped=()):
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(counts_text(records, skipped))
    text = console.export_text()
    return text, {line.split("  ")[0].strip(): line.split()[-5:] for line in text.splitlines() if line.strip()}


def cells(name):
    text, _ = rows(*RECORDS)
    (line,) = (line for line in text.splitlines() if line.startswith(f" {name}  "))
    return line[len(name) + 1 :].replace(" (", "(").split()


def test_the_stock_wrapper_comes_first_and_ratios_are_to_it():
    assert cells("counter") == ["torch_dp", "naive", "tuned"]
    assert cells("operators") == ["2,000", "2,000(1)", "1,500(0.750)"]
    assert cells("  forward") == ["1,000", "1,000(1)", "500(0.500)"]


def test_copies_are_summed_by_kind_of_link():
    assert cells("copies between devices") == ["5", "5(1)", "5(1)"]
    assert cells("copies from the host") == ["9", "9(1)", "9(1)"]
    assert cells("peak bytes")[0] == "1,024"
    assert "copies to the host" not in rows(*RECORDS)[0], "a row of zeros is left out"


def test_the_busiest_device_and_link_are_those_of_the_whole_step():
    copies = [
        {"host->sim:0": 1000, "sim:0->sim:1": 20, "sim:0->sim:2": 30},
        {"sim:2->sim:1": 25, "sim:1->sim:0": 40, "sim:0->sim:1": 5},
    ]
    phases = {
        phase: PhaseCounts(copies={link: Traffic(count=1, size_bytes=size) for link, size in found.items()})
        for phase, found in zip((Phase.FORWARD, Phase.BACKWARD), copies, strict=True)
    }
    record = simulated("tuned", 1).model_copy(update={"counts": Counts(phases=phases)})
    text, _ = rows(record)
    found = {
        line.rsplit(maxsplit=1)[0].strip(): line.rsplit(maxsplit=1)[1] for line in text.splitlines() if "bus" in line
    }
    assert found["bytes out of the busiest device"] == "55"
    assert found["bytes into the busiest device"] == "50"
    assert found["bytes of the busiest link"] == "40"


def test_python_calls_on_cpu_lanes_are_in_the_variants_column_and_relative_to_naive():
    assert cells("Python calls") == ["-", "200", "50(0.250)"]


def test_nccl_is_explained_only_where_a_record_has_it():
    stock = simulated("torch_dp", 1000)
    links = stock.counts.model_copy(update={"nccl_links": {"sim:0->sim:1": 20}})
    assert "With NCCL: what torch_dp sends" in rows(stock.model_copy(update={"counts": links}))[0]
    assert "NCCL" not in rows(stock)[0]


def test_shares_are_percentages_and_zero_is_shown():
    assert cells("gradients ready at half") == ["0%", "0%", "50%"]
    assert cells("gradients free at half") == ["0%", "0%", "0%"]
    assert cells("early parameters") == ["100%"] * 3


def test_failed_and_skipped_cases_are_reported_below_the_table():
    text, _ = rows(*RECORDS, FAILED, skipped=[Skip(case("ddp"), "needs processes")])
    assert f"{FAILED.case.id}: crashed: killed by SIGSEGV: last words" in text
    assert "ddp: needs processes" in text


def test_json_has_a_case_for_each_record_with_the_keys_of_compare():
    found = counts_json([*RECORDS, FAILED], [Skip(case("ddp"), "needs processes")])
    json.dumps(found, allow_nan=False)
    assert found["environment"]["torch"] == "2.13.0"
    times = comparisons_json(compare([], [Skip(case("ddp"), "x")]))
    assert found["schema"] == times["schema"]
    assert {frozenset(each) for each in found["cases"]} == {frozenset(times["cases"][0])}
    outcomes = [each["outcome"] for each in found["cases"]]
    assert outcomes == ["ok"] * 5 + ["crashed", "skipped"]
    assert found["cases"][1]["counts"]["phases"]["forward"]["copies"]["sim:0->sim:1"] == {"count": 2, "size_bytes": 20}
    assert found["cases"][-1]["reason"] == "needs processes"
    assert found["cases"][-1]["counts"] is None
