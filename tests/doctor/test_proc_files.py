import pytest

from dpbench.doctor.child.proc_files import (
    is_virtual,
    parse_clocks_mhz,
    parse_cores,
    parse_load,
    parse_meminfo,
)
from dpbench.sweep.host import CpuTimes, parse_cpu_times

# From a kernel 6.1, shortened.
STAT = """\
cpu  406232 12 54771 358207 1195 7 279 1321 500 0
cpu0 173240 0 24658 211782 238 0 62 729 0 0
intr 2077209 0 0
"""
CPUINFO = """\
processor\t: 0
model name\t: AMD EPYC
cpu MHz\t\t: 2596.098
flags\t\t: fpu vme de hypervisor lahf_lm

processor\t: 1
cpu MHz\t\t: 1500.000
flags\t\t: fpu vme de hypervisor lahf_lm
"""
MEMINFO = "MemTotal:       24618364 kB\nMemAvailable:   23051912 kB\nHugePages_Total:       0\nSwapTotal:   0 kB\n"


def test_cpu_times_count_guests_once_and_stolen_time_apart():
    assert parse_cpu_times(STAT) == CpuTimes(
        busy=406232 + 12 + 54771 + 7 + 279, stolen=1321, total=406232 + 12 + 54771 + 358207 + 1195 + 7 + 279 + 1321
    )


def test_times_since():
    assert CpuTimes(50, 5, 100).since(CpuTimes(20, 1, 40)) == CpuTimes(30, 4, 60)


def test_load():
    assert parse_load("4.46 3.57 2.65 12/123 17506\n") == 4.46


def test_clocks_and_hypervisor():
    assert parse_clocks_mhz(CPUINFO) == [2596.098, 1500.0]
    assert is_virtual(CPUINFO)
    assert not is_virtual(CPUINFO.replace("hypervisor ", ""))
    assert parse_clocks_mhz("processor: 0\nFeatures: fp asimd\n") == []


@pytest.mark.parametrize(
    ("text", "cores"), [("0-3,8\n", [0, 1, 2, 3, 8]), ("0", [0]), ("\n", []), ("0-1,4-5", [0, 1, 4, 5])]
)
def test_cores(text, cores):
    assert parse_cores(text) == cores


def test_meminfo_is_in_bytes_and_lines_without_a_unit_are_left_out():
    assert parse_meminfo(MEMINFO) == {"MemTotal": 24618364 * 1024, "MemAvailable": 23051912 * 1024, "SwapTotal": 0}
