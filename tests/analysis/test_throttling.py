import pytest

from dpbench.analysis.compare_variants import compare
from dpbench.errors import WrongInputError
from dpbench.records.readings import TELEMETRY, DeviceTelemetry, Reading
from dpbench.records.record import Metrics, Record
from tests.records.making import METRICS, case, ok

UNKNOWN = Reading(reason="not on this GPU")


def gpu(window_s: float = 10.0, **throttled_s: Reading) -> DeviceTelemetry:
    return DeviceTelemetry(
        uuid="GPU-a", window_s=window_s, throttled_s=throttled_s, **dict.fromkeys(TELEMETRY, UNKNOWN)
    )


def metrics(**telemetry: DeviceTelemetry | str) -> Metrics:
    return METRICS.model_copy(update={"telemetry": telemetry})


COOL = metrics(a=gpu(power=Reading(value=0), thermal=UNKNOWN), b=gpu(power=Reading(value=0.1)))
HOT = metrics(a=gpu(power=Reading(value=0)), b=gpu(power=Reading(value=0), thermal=Reading(value=0.11)))
SILENT = metrics(a=gpu(power=UNKNOWN), b="MIG has split the GPU")


@pytest.mark.parametrize(
    ("measured", "expected"), [(COOL, False), (HOT, True), (SILENT, None), (METRICS, None), (metrics(cpu="none"), None)]
)
def test_a_record_is_marked_where_any_cause_on_any_gpu_took_over_a_hundredth(measured: Metrics, expected: bool | None):
    assert measured.is_throttled is expected


def records(variant: str, *rounds: Metrics, devices: str = "cuda*2", batch: int = 64) -> list[Record]:
    of = case(variant, devices, batch)
    return [ok(of, number).model_copy(update={"metrics": measured}) for number, measured in enumerate(rounds)]


@pytest.mark.parametrize(
    "other",
    [
        records("naive", COOL, COOL),
        records("tuned", COOL, HOT),  # rounds of one case
        records("single", COOL, devices="cuda:0", batch=32),  # the single-device baseline
    ],
)
def test_a_throttled_record_is_compared_with_no_other_and_both_are_named(other):
    mine = records("tuned", HOT)
    unlike = next(record for record in other if record.metrics is COOL)
    with pytest.raises(WrongInputError) as caught:
        compare([*mine, *(record.model_copy(update={"run": "another"}) for record in other)])
    assert str(caught.value) == (
        f"throttled: {mine[0].case.id} (round 0) was held back by its GPUs' clocks and {unlike.case.id} (round "
        f"{unlike.round}) was not; allowed: records that are alike in this"
    )


def test_when_told_it_is_let_through_and_returned():
    comparisons = compare([*records("tuned", HOT), *records("naive", COOL)], allow_different=True)
    assert comparisons.differences == {"throttled": (False, True)}
    assert len(comparisons.comparisons[0].rows) == 2


def test_what_is_alike_or_unknown_or_never_compared_is_compared_as_ever():
    for others in (
        records("naive", HOT),
        records("naive", SILENT),
        records("naive", METRICS, devices="cpu*2"),
        records("naive", COOL, batch=128),
    ):
        assert compare([*records("tuned", HOT), *others]).differences == {}
