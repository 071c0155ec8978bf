"""`dpbench counts`: what it prints and the exit code, without children."""

import json
import sys

import pytest

from dpbench import cli
from dpbench.cases.counted_cases import checked_cases
from dpbench.cli import measured as cli_measured
from dpbench.records import expected
from dpbench.records.counts import CountRecord, Counts, Phase, PhaseCounts
from dpbench.records.record import Environment, Outcome
from tests.old_torch import needs_operations

ENVIRONMENT = Environment(
    hostname="fake", os="Linux", python="3.11.7", torch="2.13.0+cpu", cpu_model="fake", cores=2, dpbench="0"
)


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


@pytest.fixture
def counter(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    counter = FakeCounter()
    monkeypatch.setattr(cli_measured, "count_all", counter)
    monkeypatch.setattr(expected, "installed_versions", lambda: ("2.13.0", "3.11"))
    return counter


@pytest.fixture
def call(counter, monkeypatch, capsys):
    """Call the command line; the call returns exit code, standard output and standard error."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["dpbench", "counts", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return call


def test_by_default_stock_naive_and_tuned_on_four_simulated_devices(call, counter):
    code, out, _ = call()
    assert code == 0
    assert "torch_dp" in out
    assert {(str(case.variant), len(case.devices)) for case in counter.cases} == {
        ("torch_dp", 4),
        ("naive", 4),
        ("tuned", 4),
    }


def test_json_alone_is_on_standard_output(call):
    code, out, _ = call("--json", "--variants", "naive", "--devices", "sim*2")
    assert code == 0
    assert [each["counts"]["phases"]["forward"]["operators"] for each in json.loads(out)["cases"]] == [3, 3]


def test_update_records_and_check_holds_the_set_against_it(call, counter, tmp_path):
    code, out, _ = call("--update")
    assert (code, out) == (0, "recorded: results/expected/torch-2.13.0-py3.11.json\n")
    assert counter.cases == checked_cases()
    assert call("--check")[0] == 0
    counter.operators = 4
    code, out, _ = call("--check")
    assert code == 1
    *changes, last = out.splitlines()
    assert changes == [f"{case.id}: forward.operators: 3 -> 4" for case in sorted(checked_cases(), key=lambda c: c.id)]
    assert last.endswith("dpbench counts --update")
    code, out, _ = call("--check", "--json")
    assert (code, json.loads(out)["differences"]) == (1, changes)


def test_without_expectations_for_this_torch_and_python_a_check_cannot_be(call, counter):
    code, out, err = call("--check")
    assert (code, out, counter.cases) == (2, "", ())
    assert "torch-2.13.0-py3.11.json is not in 'results/expected'; there: none" in err
    assert "dpbench counts --update" in err


def test_what_the_children_refuse_is_one_line(call, counter):
    counter.reason = "devices: the simulator was tested with torch 2.13; this is 2.9.0"
    assert call() == (2, "", f"dpbench: {counter.reason}\n")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["--script", "none.py"], 2, "script: 'none.py' is no file; allowed: a script of Python"),
        (["--script", "train.py", "--nproc-per-node", "9"], 2, "--nproc-per-node: 9 is not allowed; allowed: 2 to 8"),
        (["--script", "train.py", "--steps", "2"], 2, "--steps: 2 is not allowed; allowed: 3 to 1000"),
        (["--script", "train.py", "--batch", "8"], 2, "--batch: '8' does not fit a script"),
        (["--script", "train.py", "--check"], 2, "--check: True does not fit a script"),
        (["--nproc-per-node", "2"], 2, "--nproc-per-node: 2 is of a script; allowed: with --script"),
        (["--", "--tiny"], 2, "arguments: ['--tiny'] is of a script"),
        (
            ["--script", "train.py"],
            3,
            "AssertionError: --tiny is missing at train.py, line 2",
        ),
    ],
)
def test_wrong_options_of_a_script_are_one_line(call, tmp_path, words, code, line):
    (tmp_path / "train.py").write_text("import sys\nassert '--tiny' in sys.argv, '--tiny is missing'\n")
    exit_code, out, err = call(*words)
    assert (exit_code, out, err.count("\n")) == (code, "", 1)
    assert line in err


@needs_operations
def test_a_script_is_counted_as_text_and_as_json(call, tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, torch\nfrom torch import distributed as dist\ndist.init_process_group('gloo')\n"
        "assert sys.argv == ['train.py', '--tiny']\noptimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])\n"
        "while True:\n    dist.all_reduce(torch.ones(4))\n    optimizer.step()\n"
    )
    code, out, _ = call("--script", "train.py", "--steps", "3", "--json", "--", "--tiny")
    found = json.loads(out)
    assert code == 0
    assert (
        found["counters"].items() >= {"step.other.all_reduce.count": 1, "step.other.all_reduce.size_bytes": 16}.items()
    )
    code, out, _ = call("--script", "train.py", "--steps", "3", "--", "--tiny")
    assert "1 of 1 steps after the first 2: 1 collectives, 1 exposed, 16 bytes" in out
    assert "train.py:7" in out
