import pytest
from rich.cells import cell_len

from dpbench.report.device_table import DeviceRows, devices_legend, devices_parts
from dpbench.report.table import plain_lines
from dpbench.results.device_summary import summarise_devices
from dpbench.results.readings import Reading, over_rounds
from dpbench.results.record import DeviceTelemetry
from tests.results.making import METRICS, telemetry

REFUSED = Reading(reason="no permission")
GIB = 2.0**30


def row(name: str, *devices: DeviceTelemetry | str, host_bytes: float | None = None, peaks: float = GIB) -> DeviceRows:
    names = [f"cuda:{i}" for i in range(len(devices))]
    metrics = METRICS.model_copy(
        update={
            "telemetry": dict(zip(names, devices, strict=True)),
            "peak_device_bytes": dict.fromkeys(names, Reading(value=peaks)),
        }
    )
    host = None if host_bytes is None else over_rounds([Reading(value=host_bytes)])
    return DeviceRows(name, summarise_devices([metrics]), host)


def cells(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def text(*rows: DeviceRows, width: int = 120) -> list[str]:
    return plain_lines(*devices_parts(rows), width=width)


def test_the_busiest_and_the_idlest_device_have_a_line_each() -> None:
    shown = text(row("tuned", telemetry(80.0), telemetry(10.0), telemetry(40.0), host_bytes=3 * GIB))
    assert cells(shown)[0] == ["devices"]
    #                                         SMs   DRAM  memory power energy PCIe NVLink throttled host
    assert ["tuned", "cuda:0", "80.0", "80.0", "1.00", "80.0", "80.0", "0.000160", "0.000160", "25.0", "3.00"] in cells(
        shown
    )
    assert ["cuda:1", "10.0", "10.0", "1.00", "10.0", "10.0", "0.0000200", "0.0000200", "25.0"] in cells(shown)
    assert not any("cuda:2" in line for line in shown)


def test_devices_with_equal_figures_share_a_line() -> None:
    shown = text(row("tuned", telemetry(80.0), telemetry(80.0)))
    assert [line for line in shown if "each of 2" in line]
    assert not any("cuda" in line for line in shown)


def test_the_legend_has_the_columns_that_are_shown() -> None:
    nvlink = telemetry(80.0)
    without = telemetry(80.0, nvlink_sent_bytes_per_step=REFUSED, nvlink_received_bytes_per_step=REFUSED)
    assert "PCIe: sent and received. NVLink: sent and received. Throttled" in devices_legend([row("tuned", nvlink)])
    assert "PCIe: sent and received. Throttled" in devices_legend([row("tuned", without)])
    host = devices_legend([row("tuned", host_bytes=GIB)])
    assert host == "devices: medians over rounds, of the timed steps. Host memory: all processes of the case."


def test_columns_without_any_value_are_left_out_and_the_reason_is_below() -> None:
    refused = telemetry(80.0, power_w=REFUSED, energy_per_step_j=REFUSED)
    shown = text(row("tuned", refused), row("naive", refused))
    assert not any("W" in line.split() or "J/step" in line for line in shown)
    assert "power, energy: no permission" in shown


def test_a_missing_value_in_a_column_says_where_it_is_missing() -> None:
    shown = text(row("tuned", telemetry(80.0), telemetry(10.0, power_w=REFUSED)), row("naive", telemetry(80.0)))
    assert "power: no permission (cuda:1)" in shown
    shown = text(row("tuned", telemetry(80.0, power_w=REFUSED)), row("naive", telemetry(80.0)))
    assert "power: no permission (tuned)" in shown


def test_without_busy_sms_the_time_with_a_kernel_is_shown() -> None:
    shown = text(row("tuned", telemetry(80.0, sm_busy_percent=REFUSED)))
    assert any("kernel, %" in line for line in shown)
    assert not any("SMs" in line for line in shown[:5])
    assert "busy SMs: no permission" in shown
    assert not any("kernel" in line for line in text(row("tuned", telemetry(80.0))))


def test_without_telemetry_memory_is_shown_with_one_reason_for_the_rest() -> None:
    shown = text(row("tuned", "no\ndriver\x1b[2J", host_bytes=GIB))
    assert ["tuned", "cuda:0", "1.00", "1.00"] in cells(shown)
    assert "telemetry: no driver [2J" in shown


def test_without_anything_read_there_is_no_table() -> None:
    assert text() == text(DeviceRows("tuned", (), None)) == []


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_gets_the_columns_below_each_other(width: int) -> None:
    long = "tuned[bucket_bytes=1048576,dispatch=threads]"
    shown = text(row(long, telemetry(80.0), telemetry(10.0), host_bytes=GIB), width=width)
    assert all(cell_len(line) <= width for line in shown)
    assert sum(line.startswith("devices") for line in shown) > 1
    for word in ("SMs, %", "J/step", "throttled,", "host memory,", "dispatch=threads]"):
        assert any(word in line for line in shown), word


def test_a_records_names_and_reasons_cannot_command_the_terminal() -> None:
    readings = {"cuda\x1b[2J\x07": telemetry(80.0, power_w=REFUSED), "cuda:1": "no\x1b]0;driver"}
    found = summarise_devices([METRICS.model_copy(update={"telemetry": readings})])
    shown = "\n".join(text(DeviceRows("tuned", found, None)))
    assert "cuda [2J" in shown
    assert not {"\x1b", "\x07"} & set(shown)
