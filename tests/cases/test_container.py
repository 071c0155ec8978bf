import pytest

from dpbench.cases.host import Limits, parse_cpu_max, parse_cpu_quota, parse_membership, parse_memory, read_limits

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
