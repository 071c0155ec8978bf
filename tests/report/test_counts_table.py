"""Counts as tables and as JSON."""

from dpbench.analysis.compare_variants import compare
from dpbench.cases.case import Case
from dpbench.cases.plan import Skip
from dpbench.records.count_record import CountRecord, Counts, Dependencies, Phase, PhaseCounts, Traffic
from dpbench.records.record import Environment, Outcome
from dpbench.report.comparison import comparisons_json
from dpbench.report.counts_table import counts_json, counts_text
from tests.report.snapshots import assert_as_before, printed

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


def test_text_and_json_are_as_before():
    skipped = [Skip(case("ddp"), "needs processes")]
    links = RECORDS[2].counts.model_copy(update={"nccl_links": {"sim:0->sim:1": 20}})
    nccl = RECORDS[2].model_copy(update={"counts": links})
    for name, records in (("counts", [*RECORDS, FAILED]), ("nccl", [nccl]), ("busiest", [busiest()])):
        assert_as_before(f"counts/{name}.txt", printed(counts_text(records, skipped), 120))
        assert_as_before(f"counts/{name}.json", counts_json(records, skipped))
    assert_as_before("counts/differing.txt", printed(counts_text(RECORDS, differing=True), 120))


def test_one_variant_has_no_table_of_what_differs():
    assert printed(counts_text([calls("tuned", 50), simulated("tuned", 500)], differing=True), 120) == ""


def busiest():
    """Return a record whose busiest device sends 55 bytes, receives 50 at most, and has 40 on one link."""
    copies = [
        {"host->sim:0": 1000, "sim:0->sim:1": 20, "sim:0->sim:2": 30},
        {"sim:2->sim:1": 25, "sim:1->sim:0": 40, "sim:0->sim:1": 5},
    ]
    phases = {
        phase: PhaseCounts(copies={link: Traffic(count=1, size_bytes=size) for link, size in sizes.items()})
        for phase, sizes in zip((Phase.FORWARD, Phase.BACKWARD), copies, strict=True)
    }
    return simulated("tuned", 1).model_copy(update={"counts": Counts(phases=phases)})


def test_json_has_the_keys_of_compare():
    (times,) = comparisons_json(compare([], [Skip(case("ddp"), "x")]))["cases"]
    assert {frozenset(row) for row in counts_json([*RECORDS, FAILED])["cases"]} == {frozenset(times)}
