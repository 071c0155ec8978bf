"""`dpbench counts`: what it prints and the exit code, without children."""

import json

import pytest

from dpbench.cases.counted_cases import checked_cases
from dpbench.cli import measured as cli_measured
from dpbench.records import expected
from dpbench.records.count_record import CountRecord, Counts, Phase, PhaseCounts
from dpbench.records.record import Outcome
from tests.old_torch import needs_operations
from tests.records.making import ENVIRONMENT


class FakeCounter:
    """Replaces `count_all`: every case has `operators`, or is skipped with `reason`."""

    def __init__(self):
        self.operators, self.reason, self.events, self.cases = 3, None, None, ()

    def __call__(self, cases, *, events=None):
        self.cases, self.events = cases, events
        if self.reason is not None:
            return tuple(CountRecord(case=case, outcome=Outcome.SKIPPED, reason=self.reason) for case in cases)
        counts = Counts(phases={Phase.FORWARD: PhaseCounts(operators=self.operators)})
        return tuple(
            CountRecord(case=case, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT) for case in cases
        )


@pytest.fixture(autouse=True)
def counter(monkeypatch):
    counter = FakeCounter()
    monkeypatch.setattr(cli_measured, "count_all", counter)
    monkeypatch.setattr(expected, "installed_versions", lambda: ("2.13.0", "3.11"))
    return counter


def test_by_default_stock_naive_and_tuned_on_four_simulated_devices(call, counter):
    code, out, _ = call("counts")
    assert code == 0
    assert "torch_dp" in out
    assert {(str(case.variant), len(case.devices)) for case in counter.cases} == {
        ("torch_dp", 4),
        ("naive", 4),
        ("tuned", 4),
    }


def test_json_alone_is_on_standard_output(call):
    code, out, _ = call("counts", "--json", "--variants", "naive", "--devices", "sim*2")
    assert code == 0
    assert [case["counts"]["phases"]["forward"]["operators"] for case in json.loads(out)["cases"]] == [3, 3]


def test_update_records_and_check_holds_the_set_against_it(call, counter, tmp_path):
    code, out, _ = call("counts", "--update")
    assert (code, out) == (0, "recorded: results/expected/torch-2.13.0-py3.11.json\n")
    assert counter.cases == checked_cases()
    assert call("counts", "--check")[0] == 0
    counter.operators = 4
    code, out, _ = call("counts", "--check")
    assert code == 1
    *changes, last = out.splitlines()
    assert changes == [f"{case.id}: forward.operators: 3 -> 4" for case in sorted(checked_cases(), key=lambda c: c.id)]
    assert last.endswith("dpbench counts --update")
    code, out, _ = call("counts", "--check", "--json")
    assert (code, json.loads(out)["differences"]) == (1, changes)


def test_without_expectations_for_this_torch_and_python_a_check_cannot_be(call, counter):
    code, out, err = call("counts", "--check")
    assert (code, out, counter.cases) == (2, "", ())
    assert "torch-2.13.0-py3.11.json is not in 'results/expected'; there: none" in err
    assert "dpbench counts --update" in err


def test_what_the_children_refuse_is_one_line(call, counter):
    counter.reason = "devices: the simulator was tested with torch 2.13; this is 2.9.0"
    assert call("counts") == (2, "", f"dpbench: {counter.reason}\n")


def test_a_path_that_no_command_checks_is_one_line(call):
    code, out, err = call("counts", "--check", "--expected", "x" * 300)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "File name too long; allowed: a path that can be used" in err


def test_the_error_of_a_script_is_one_line(call, tmp_path):
    (tmp_path / "train.py").write_text("import sys\nassert '--tiny' in sys.argv, '--tiny is missing'\n")
    code, out, err = call("counts", "--script", "train.py")
    *_, line = err.splitlines()  # after five seconds a line says what is waited for
    assert (code, out, err.count("dpbench: ")) == (3, "", 1)
    assert "AssertionError: --tiny is missing at train.py, line 2" in line


@needs_operations
def test_a_script_is_counted_as_text_and_as_json(call, tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, torch\nfrom torch import distributed as dist\ndist.init_process_group('gloo')\n"
        "assert sys.argv == ['train.py', '--tiny']\noptimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])\n"
        "while True:\n    dist.all_reduce(torch.ones(4))\n    optimizer.step()\n"
    )
    code, out, _ = call("counts", "--script", "train.py", "--steps", "3", "--json", "--", "--tiny")
    counters = json.loads(out)["counters"]
    assert code == 0
    assert counters.items() >= {"step.other.all_reduce.count": 1, "step.other.all_reduce.size_bytes": 16}.items()
    code, out, _ = call("counts", "--script", "train.py", "--steps", "3", "--", "--tiny")
    assert "1 of 1 steps after the first 2: 1 collectives, 1 exposed, 16 bytes" in out
    assert "train.py:7" in out
