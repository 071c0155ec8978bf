"""Tables show a variant's brackets; rich would take them for its own markup."""

from dpbench.analysis.compare_variants import compare
from dpbench.cases.parameters import DDP_PARAMETERS, TUNED_PARAMETERS
from dpbench.cases.variants import VariantId
from dpbench.cli.list_names import vocabulary_json, vocabulary_text
from dpbench.records.count_record import CountRecord, Counts, Phase, PhaseCounts
from dpbench.report.comparison import comparisons_text
from dpbench.report.counts_table import counts_text
from tests.records.making import ENVIRONMENT, case, ok
from tests.report.snapshots import printed

TUNED = VariantId("tuned[dispatch=threads]")


def test_a_comparison_shows_them_in_its_rows_and_as_its_reference():
    records = [ok(case("naive"), 0), ok(case("tuned").of(TUNED), 0)]
    text = printed(comparisons_text(compare(records, reference=TUNED)), 200)
    assert f" {TUNED} " in text
    assert f"ratio to {TUNED}" in text


def test_counts_show_them_in_their_columns():
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(operators=1)})
    record = CountRecord(case=case("tuned").of(TUNED), outcome="ok", counts=counts, environment=ENVIRONMENT)
    assert f" {TUNED}\n" in printed(counts_text([record]), 200)


def test_the_list_has_a_line_for_each_with_what_is_allowed():
    text = printed(vocabulary_text(), 200)
    lines = {line.split()[0]: line for line in text.splitlines() if "=...]" in line}
    assert set(lines) == {f"tuned[{name}=...]" for name in TUNED_PARAMETERS} | {
        *(f"ddp[{name}=...]" for name in DDP_PARAMETERS),
        "VARIANT[compile=...]",
    }
    assert "threads, sequence, auto" in lines["tuned[dispatch=...]"]
    listed = {parameter["name"]: parameter for parameter in vocabulary_json()["parameters"]}
    assert set(listed) == {*TUNED_PARAMETERS, *DDP_PARAMETERS, "compile"}
    assert listed["dispatch"]["allowed"] == "threads, sequence, auto"
    assert "tuned" in listed["dispatch"]["variants"]
