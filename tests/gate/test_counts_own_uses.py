"""The uses in a file of a project that has no wrapper: counted on base and head by one file."""

from pathlib import Path

import pytest

from dpbench.engine.launch import launch
from dpbench.engine.messages import CountJob
from dpbench.errors import GateError
from dpbench.gate.count_sides import compare_counters
from dpbench.gate.settings import Uses
from dpbench.gate.sides import Sides
from dpbench.gate.tier0_cases import Tier0
from tests.simulated import needs_simulator

BASE = """
left = 1
def scaled(x):
    return x * 2
"""
INSTRUMENT = """
import torch, mine
USES = {
    "scaled": lambda devices: lambda: mine.scaled(torch.ones(4, device=devices[0])),
    "once_left": lambda _: {"threads": mine.left},
}
"""


@pytest.fixture
def compare(tmp_path):
    """Compare base with this code of head, by this instrument."""

    def call(head: str, instrument: str = INSTRUMENT, devices: str = "cpu*2"):
        for side, text in (("base", BASE), ("head", head)):
            (tmp_path / side / "src").mkdir(parents=True)
            (tmp_path / side / "src" / "mine.py").write_text(text)
        (tmp_path / "uses.py").write_text(instrument)
        job = CountJob(case=Uses(file="uses.py", devices=devices).case(tmp_path))
        counters = compare_counters(Tier0({"mine": job}), Sides(tmp_path / "base", tmp_path / "head", launch), {})
        return {change.counter: (change.base, change.head, change.is_worse) for change in counters.changes}

    return call


def test_more_work_of_a_use_and_a_larger_number_are_worse(compare):
    changed = compare("left = 3" + BASE.partition("1")[2].replace("x * 2", "x * 2 + 1"))
    assert changed["uses.scaled.host_operators"] == (2, 3, True)
    assert changed["uses.once_left.threads"] == (1, 3, True)
    assert "uses.scaled.absent" not in changed


@needs_simulator
def test_on_simulated_devices_what_they_do_is_counted(compare):
    changed = compare(BASE.replace("x * 2", "x * 2 + 1"), devices="sim*2")
    assert changed["uses.scaled.kernels"] == (2, 3, True)
    assert "uses.scaled.python_calls" not in changed


def test_a_use_that_only_head_cannot_do_is_worse(compare):
    assert compare(BASE.replace("scaled", "other")) == {"uses.scaled.absent": (0, 1, True)}


@pytest.mark.parametrize(
    ("instrument", "why"),
    [
        ("USES = 3", "uses: 'uses.py': USES is int '3'; allowed: a dict of functions by name"),
        ("import nowhere", "uses: 'uses.py': importing it raised ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_file_without_uses_breaks_the_gate(compare, instrument, why):
    with pytest.raises(GateError, match=r"^base: mine: crashed: ") as caught:
        compare(BASE, instrument)
    assert str(caught.value).endswith(why)


def test_the_instrument_is_no_file_of_a_side(compare, tmp_path: Path):
    changed = compare(BASE, "from pathlib import Path\nUSES = {'a': lambda _: {'n': len(str(Path(__file__).parent))}}")
    assert changed == {}
