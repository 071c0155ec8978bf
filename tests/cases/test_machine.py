import pytest

from dpbench.cases.host import affinity, cpu_governor, ranges, usable_cores


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
