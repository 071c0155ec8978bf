"""What the host offers: cores, limits of a container, clock governor, network speed."""

import pytest

from dpbench.cases.host import (
    Limits,
    affinity,
    cpu_governor,
    link_mbit_per_s,
    parse_cpu_max,
    parse_cpu_quota,
    parse_membership,
    parse_memory,
    ranges,
    read_limits,
    usable_cores,
)


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 8], "0-3,8"), ([0, 2, 4, 5], "0,2,4-5")]
)
def test_ranges(numbers, text):
    assert ranges(numbers) == text


def test_affinity_has_as_many_cores_as_are_usable():
    spans = [list(map(int, part.split("-"))) for part in affinity().split(",")]
    assert sum(span[-1] - span[0] + 1 for span in spans) == usable_cores()


def test_governors(tmp_path):
    assert cpu_governor(tmp_path) is None
    for core, governor in enumerate(["performance", "powersave", "performance"]):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(governor + "\n")
    assert cpu_governor(tmp_path) == "performance,powersave"


DOCKER_V1 = """\
4:memory:/docker/f6d5
3:cpuset:/
2:cpu,cpuacct:/docker/f6d5
1:name=systemd:/init.scope
0::/
"""


def test_membership():
    groups = parse_membership(DOCKER_V1)
    assert groups["memory"] == groups["cpu"] == groups["cpuacct"] == "/docker/f6d5"
    assert groups[""] == "/"
    assert parse_membership("0::/user.slice/a:b.scope\n") == {"": "/user.slice/a:b.scope"}


@pytest.mark.parametrize(("text", "cores"), [("max 100000\n", None), ("250000 100000\n", 2.5)])
def test_cpu_max(text, cores):
    assert parse_cpu_max(text) == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1\n", None), ("50000\n", 0.5)])
def test_cpu_quota(quota, cores):
    assert parse_cpu_quota(quota, "100000\n") == cores


@pytest.mark.parametrize(
    ("text", "size"), [("max\n", None), ("9223372036854771712\n", None), ("17179869184\n", 16 * 2**30)]
)
def test_memory(text, size):
    assert parse_memory(text) == size


def limits(folder, membership, files):
    for name, text in files.items():
        path = folder / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "self").write_text(membership)
    return read_limits(folder / "cgroup", folder / "self")


def test_version_2_has_the_tightest_of_all_groups_above(tmp_path):
    files = {
        "a/b/cpu.max": "400000 100000",
        "a/cpu.max": "150000 100000",
        "a/b/memory.max": "max",
        "a/memory.max": "1073741824",
        "other/memory.max": "1",
    }
    assert limits(tmp_path, "0::/a/b\n", files) == Limits(1.5, 2**30)


def test_version_1_in_a_container_is_found_at_the_root_of_the_mount(tmp_path):
    files = {
        "cpu/cpu.cfs_quota_us": "200000",
        "cpu/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": "4294967296",
    }
    assert limits(tmp_path, DOCKER_V1, files) == Limits(2.0, 2**32)


def test_no_control_groups_are_no_limits(tmp_path):
    assert read_limits(tmp_path, tmp_path / "absent") == Limits()
    assert limits(tmp_path, "0::/\n", {"cpu.max": "max 100000"}) == Limits()


@pytest.mark.parametrize(("text", "speed"), [("100000\n", 100_000), ("-1\n", None), ("0\n", None), ("", None)])
def test_the_drivers_speed_if_it_knows_one(tmp_path, text, speed):
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0/speed").write_text(text)
    assert link_mbit_per_s("eth0", tmp_path) == speed


def test_an_interface_that_is_absent_or_has_no_speed_is_none(tmp_path):
    assert link_mbit_per_s("eth0", tmp_path) is None
    assert link_mbit_per_s("lo") is None  # reading its file is an error of the kernel
