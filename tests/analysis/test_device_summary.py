from dpbench.analysis.device_summary import DeviceSummary, busiest_and_idlest, summarise_devices
from dpbench.records.readings import Reading
from dpbench.records.record import Metrics
from tests.records.making import METRICS, telemetry

REFUSED = Reading(reason="no permission")


def a_round(telemetry: object, **peaks: dict[str, Reading]) -> Metrics:
    return METRICS.model_copy(update={"telemetry": telemetry, **peaks})


def of_one(*rounds: Metrics) -> DeviceSummary:
    (summary,) = summarise_devices(rounds)
    return summary


def test_a_figure_is_the_median_over_the_rounds_that_have_it() -> None:
    summary = of_one(*(a_round({"cuda:0": telemetry(busy)}) for busy in (10.0, 30.0, 50.0)))
    busy = summary.figures["sm_busy_percent"]
    assert (busy.value, busy.rounds, busy.rounds_without, busy.reason) == (30.0, 3, 0, None)
    assert (summary.device, summary.uuids, summary.value("window_s")) == ("cuda:0", ("GPU-aa",), 2.0)


def test_rounds_without_a_value_are_counted_with_their_reason() -> None:
    rounds = [{"cuda:0": telemetry(10.0, power_w=REFUSED)}, {"cuda:0": telemetry(20.0)}, {"cuda:0": "no driver"}]
    power = of_one(*map(a_round, rounds)).figures["power_w"]
    assert (power.value, power.rounds, power.rounds_without) == (20.0, 1, 2)
    assert power.reason == "no permission; no driver"


def test_without_telemetry_every_figure_has_the_reason_and_peaks_remain() -> None:
    summary = of_one(a_round({"cuda:0": "no driver"}, peak_device_bytes={"cuda:0": Reading(value=7.0)}))
    assert summary.value("peak_device_bytes") == 7
    assert summary.figures["energy_per_step_j"].reason == summary.figures["throttled_percent"].reason == "no driver"
    assert summary.figures["peak_reserved_bytes"].reason == "the record does not have it"
    assert (summary.uuids, summary.throttled_s) == ((), {})


def test_records_without_any_reading_have_no_devices() -> None:
    assert summarise_devices([METRICS]) == summarise_devices([]) == ()


def test_links_are_what_is_sent_and_received() -> None:
    summary = of_one(a_round({"cuda:0": telemetry(10.0, nvlink_sent_bytes_per_step=REFUSED)}))
    assert summary.value("pcie_bytes_per_step") == 20.0
    assert summary.value("nvlink_bytes_per_step") is None
    assert summary.figures["nvlink_bytes_per_step"].reason == "no permission"


def test_the_throttled_share_is_that_of_the_most_frequent_cause() -> None:
    assert of_one(a_round({"cuda:0": telemetry(10.0)})).value("throttled_percent") == 25.0
    unknown = of_one(a_round({"cuda:0": telemetry(10.0, throttled_s={"power": REFUSED})}))
    assert unknown.figures["throttled_percent"].reason == "no permission"
    assert unknown.throttled_s["power"].value is None


def test_sources_and_the_shortest_span_are_kept() -> None:
    powers = [Reading(value=1.0, source="driver's samples", span_s=span_s) for span_s in (2.0, 1.0)]
    power = of_one(*(a_round({"cuda:0": telemetry(10.0, power_w=power_w)}) for power_w in powers)).figures["power_w"]
    assert (power.source, power.span_s) == ("driver's samples", 1.0)


def ends(*busy: object) -> list[str]:
    devices = {f"cuda:{i}": telemetry(share) if isinstance(share, float) else share for i, share in enumerate(busy)}
    return [device.device for device in busiest_and_idlest(summarise_devices([a_round(devices)]))]


def test_the_busiest_comes_first_and_the_idlest_second() -> None:
    assert ends(20.0, 80.0, 10.0, 50.0) == ["cuda:1", "cuda:2"]
    assert ends(20.0, 20.0, 20.0) == ["cuda:0", "cuda:2"]
    assert ends(20.0) == ["cuda:0"]
    assert ends(20.0, "no driver") == ["cuda:0"]
    assert ends("no driver", "no driver") == ["cuda:0"]
    assert ends() == []


def test_without_busy_sms_the_time_with_a_kernel_decides() -> None:
    def device(percent: float) -> object:
        return telemetry(percent, sm_busy_percent=REFUSED)

    assert ends(device(10.0), device(90.0)) == ["cuda:1", "cuda:0"]
