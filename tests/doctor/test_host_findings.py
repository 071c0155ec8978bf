"""Findings from files as kernels write them, in a folder in place of the root."""

import pytest

from dpbench.cases.host import CpuTimes, parse_cpu_times
from dpbench.doctor.child.host_findings import (
    examine_host,
    is_virtual,
    parse_cores,
    parse_meminfo,
)
from dpbench.doctor.findings import Severity

# From a kernel 6.1, shortened.
STAT = """\
cpu  406232 12 54771 358207 1195 7 279 1321 500 0
cpu0 173240 0 24658 211782 238 0 62 729 0 0
intr 2077209 0 0
"""
CPUINFO = """\
processor\t: 0
model name\t: AMD EPYC
flags\t\t: fpu vme de hypervisor lahf_lm

processor\t: 1
flags\t\t: fpu vme de hypervisor lahf_lm
"""
MEMINFO = "MemTotal:       24618364 kB\nMemAvailable:   23051912 kB\nHugePages_Total:       0\nSwapTotal:   0 kB\n"

CPUS = "sys/devices/system/cpu"
QUIET = {
    "proc/stat": "cpu  1000 0 1000 98000 0 0 0 0 0 0\n",
    "proc/cpuinfo": CPUINFO.replace("hypervisor ", ""),
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB\nSwapTotal: 10 kB\nSwapFree: 10 kB\n",
    "proc/self/cgroup": "0::/\n",
    f"{CPUS}/online": "0-3\n",
    f"{CPUS}/cpu0/cpufreq/scaling_governor": "performance\n",
    f"{CPUS}/smt/active": "0\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
}


@pytest.fixture
def examine(tmp_path):
    """Return a function from changed files to the findings by name.

    The other files are those of a quiet machine. None in place of a text removes the file.
    """

    def call(files=None, after=QUIET["proc/stat"], cores=(0, 1, 2, 3)):
        for name, text in {**QUIET, **(files or {})}.items():
            if text is not None:
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).write_text(text)
        pauses = []

        def pause(seconds):
            pauses.append(seconds)
            if (tmp_path / "proc/stat").exists():
                (tmp_path / "proc/stat").write_text(after)

        findings = examine_host(tmp_path, cores, pause)
        assert pauses == [1.0]
        return {finding.what: finding for finding in findings}

    return call


def test_a_quiet_machine_is_ok_in_every_check(examine):
    findings = examine(after="cpu  1000 0 1001 98400 0 0 0 0 0 0\n")
    assert {finding.severity for finding in findings.values()} == {Severity.OK}, findings
    assert findings["other load"].value == "0.2% of all cores in 1 s"


@pytest.mark.parametrize(
    ("after", "what", "severity"),
    [
        ("cpu  1100 0 1000 98300 0 0 0 0 0 0\n", "other load", "unreliable"),
        ("cpu  1000 0 1015 98385 0 0 0 0 0 0\n", "other load", "note"),
        ("cpu  1000 0 1000 98380 0 0 0 20 0 0\n", "steal time", "unreliable"),
        ("cpu  1000 0 1000 98399 0 0 0 1 0 0\n", "steal time", "note"),
    ],
)
def test_load_and_steal_time_in_the_window_are_reported(examine, after, what, severity):
    findings = examine(after=after)
    assert {name for name, finding in findings.items() if finding.severity != "ok"} == {what}
    assert findings[what].severity == severity


@pytest.mark.parametrize(
    ("files", "what", "severity", "word"),
    [
        ({f"{CPUS}/online": "0-7\n"}, "usable cores", "note", "4 of 8 (0-3)"),
        (
            {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"},
            "CPU limit",
            "unreliable",
            "1.5 cores",
        ),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "800000 100000\n"}, "CPU limit", "note", "8 cores"),
        ({f"{CPUS}/cpu0/cpufreq/scaling_governor": "powersave\n"}, "CPU governor", "note", "powersave"),
        ({f"{CPUS}/smt/active": "1\n"}, "hyper-threads", "note", "on"),
        (
            {"sys/devices/system/node/node0/cpulist": "0-1\n", "sys/devices/system/node/node1/cpulist": "2-3\n"},
            "NUMA nodes",
            "note",
            "2 of 2 used",
        ),
        ({"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 50 kB\n"}, "memory available", "unreliable", "0.0 of"),
        ({"proc/cpuinfo": CPUINFO}, "virtual machine", "note", "yes"),
    ],
)
def test_one_changed_file_is_one_finding(examine, files, what, severity, word):
    findings = examine(files)
    assert {name for name, finding in findings.items() if finding.severity != "ok"} == {what}
    assert findings[what].severity == severity
    assert word in findings[what].value


def test_only_nodes_with_usable_cores_count(examine):
    files = {"sys/devices/system/node/node0/cpulist": "0-3\n", "sys/devices/system/node/node1/cpulist": "4-7\n"}
    assert examine(files)["NUMA nodes"].value == "1 of 2 used"


def test_a_memory_limit_is_reported(examine):
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": f"{2**31}\n"}
    assert examine(files)["memory limit"].value == "2.0 GiB"


def test_a_missing_file_is_unknown_with_a_reason(examine):
    findings = examine(dict.fromkeys(QUIET, None), after="")
    values = {name: finding.value for name, finding in findings.items()}
    unknown = {name for name, value in values.items() if value.startswith("unknown: ") and len(value) > 20}
    names = ("other load", "CPU governor", "hyper-threads", "NUMA nodes")
    assert unknown == {*names, "memory available"}
    assert all(findings[name].severity == "note" for name in unknown)


def test_cpu_times_count_guests_once_and_stolen_time_apart():
    assert parse_cpu_times(STAT) == CpuTimes(
        busy=406232 + 12 + 54771 + 7 + 279, stolen=1321, total=406232 + 12 + 54771 + 358207 + 1195 + 7 + 279 + 1321
    )


def test_times_since():
    assert CpuTimes(50, 5, 100).since(CpuTimes(20, 1, 40)) == CpuTimes(30, 4, 60)


def test_hypervisor():
    assert is_virtual(CPUINFO)
    assert not is_virtual(CPUINFO.replace("hypervisor ", ""))


@pytest.mark.parametrize(
    ("text", "cores"), [("0-3,8\n", [0, 1, 2, 3, 8]), ("0", [0]), ("\n", []), ("0-1,4-5", [0, 1, 4, 5])]
)
def test_cores(text, cores):
    assert parse_cores(text) == cores


def test_meminfo_is_in_bytes_and_lines_without_a_unit_are_left_out():
    assert parse_meminfo(MEMINFO) == {"MemTotal": 24618364 * 1024, "MemAvailable": 23051912 * 1024, "SwapTotal": 0}
