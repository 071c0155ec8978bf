"""Counting end to end, in real children."""

import sys
from pathlib import Path

import pytest

from dpbench.cases.case import Case
from dpbench.cases.counted_cases import checked_cases
from dpbench.cases.names import Family
from dpbench.engine.interpret import ChildError
from dpbench.engine.launch import launch
from dpbench.engine.start import child_command
from dpbench.errors import WrongInputError
from dpbench.jobs.count import COUNTER, count_all, countable
from dpbench.records.count_record import Phase
from dpbench.records.expected import check_counts, update_counts
from dpbench.records.record import Outcome
from dpbench.records.recording import Recording
from tests.fakes import ended
from tests.simulated import needs_simulator

SIM4 = tuple(f"sim:{i}" for i in range(4))
FACTORIES = """
import os, time
from torch import nn
from dpbench.cases.names import Data
from dpbench.workloads.workload import Batch, Workload
from dpbench.workloads.resolve import resolve
import torch

def crashing(): os.abort()
def hanging(): time.sleep(1000)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 10)
    def forward(self, x):
        torch.ones(1, device=x.device).set_(x)
        return self.head(self.lstm(x)[0].mean(1))

def recurrent():
    batch = lambda size, generator: Batch((torch.randn(size, 3, 4),), torch.zeros(size, dtype=torch.long))
    return Workload(model=Recurrent, batch=batch, loss=nn.functional.cross_entropy)
"""


def case(variant, workload="mlp/tiny", devices=SIM4):
    return Case(variant=variant, workload=workload, batch=8, devices=devices, threads=1)


@needs_simulator
@pytest.mark.exhaustive
def test_ten_processes_count_the_same():
    """Two processes fork five times each. The variant uses the most threads, on simulated devices and on the CPU."""
    cases = [case("naive"), case("naive", devices=("cpu",) * 4)]
    records = [record for _ in range(2) for record in count_all(cases * 5)]
    for asked in cases:
        counts_of_runs = [record.counts for record in records if record.case == asked]
        assert len(counts_of_runs) == 10
        assert counts_of_runs[0] is not None
        assert all(counts == counts_of_runs[0] for counts in counts_of_runs)


@needs_simulator
def test_one_more_copy_fails_the_check_and_its_counter_is_named(tmp_path):
    cases = [case("tuned"), case("naive")]
    update_counts(tmp_path, count_all(cases))

    def mutated(command, stdin_text, timeout_s):
        child = Path(__file__).parent / "children" / "count_one_more_copy.py"
        return launch([*command[:-2], str(child)], stdin_text, timeout_s)

    assert COUNTER.command[-2:] == child_command("dpbench.jobs.count_child")[-2:]
    lines = check_counts(tmp_path, count_all(cases, launch=mutated))
    assert all(line.startswith(f"{case('tuned').id}: ") for line in lines)
    copies = [line for line in lines if ".copies." in line]
    assert [line.split(": ")[1] for line in copies] == [
        "forward.copies.sim:0->sim:1.count",
        "forward.copies.sim:0->sim:1.size_bytes",
    ]
    old, new = map(int, copies[0].rsplit(": ")[-1].split(" -> "))
    assert new == old + 1


RANKS = ("ddp", "ddp[hook=fp16]", "ddp[accumulate=3]", "fsdp")


@pytest.fixture(scope="module")
def phases():
    """Phases by workload and variant. Variants with ranks are counted for one workload only."""
    cases = [c for c in checked_cases() if c.variant in ("torch_dp", "naive") and c.devices == SIM4]
    ranks = [case(variant, devices=("cpu",) * 2) for variant in RANKS]
    records = countable(count_all([*cases, *ranks]))
    assert all(record.counts is not None for record in records), [record.reason for record in records]
    return {(record.case.workload, str(record.case.variant)): record.counts.phases for record in records}


@needs_simulator
@pytest.mark.parametrize("family", [family for family in Family if family is not Family.MANY])
def test_naive_copies_over_each_link_what_the_stock_wrapper_copies(phases, family):
    naive, stock = phases[f"{family}/tiny", "naive"], phases[f"{family}/tiny", "torch_dp"]
    assert {phase: counts.copies for phase, counts in naive.items()} == {
        phase: counts.copies for phase, counts in stock.items()
    }
    assert naive[Phase.BACKWARD].copies["sim:3->sim:0"].size_bytes > 0


@needs_simulator
def test_ddp_reduces_each_gradient_once(phases):
    ddp = phases["mlp/tiny", "ddp"]
    reduced = phases["mlp/tiny", "torch_dp"][Phase.BACKWARD].copies["sim:1->sim:0"].size_bytes
    assert sum(traffic.size_bytes for traffic in ddp[Phase.BACKWARD].collectives.values()) == reduced
    assert ddp[Phase.FORWARD].collectives == {}


@needs_simulator
def test_options_of_ddp_change_its_collectives_as_they_say(phases):
    reductions = {name: phases["mlp/tiny", name][Phase.BACKWARD].collectives["allreduce"] for name in RANKS[:3]}
    plain, half, accumulated = reductions.values()
    assert (half.count, half.size_bytes) == (plain.count, plain.size_bytes // 2)
    assert accumulated == plain


@needs_simulator
def test_fsdp_gathers_every_parameter_twice_and_scatters_each_gradient(phases):
    fsdp = phases["mlp/tiny", "fsdp"]
    size_bytes = phases["mlp/tiny", "ddp"][Phase.BACKWARD].collectives["allreduce"].size_bytes
    gathered, scattered = (fsdp[Phase.BACKWARD].collectives[f"{kind}_base"] for kind in ("allgather", "reduce_scatter"))
    assert fsdp[Phase.FORWARD].collectives == {"allgather_base": gathered}
    # A collective's bytes are those of its output: all ranks' parts when gathered, one rank's when scattered.
    assert (gathered.size_bytes, scattered.size_bytes) == (size_bytes, size_bytes // 2)


@needs_simulator
def test_a_crash_a_hang_and_an_unsupported_operator_do_not_affect_other_cases(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    names = ["mine:crashing", "mine:hanging", "mine:recurrent", "mine:absent", "mlp/tiny"]
    records = count_all([case("naive", name) for name in names], timeout_s=10)
    assert [record.outcome for record in records] == [
        Outcome.CRASHED,
        Outcome.TIME_OUT,
        Outcome.SKIPPED,
        Outcome.SKIPPED,
        Outcome.OK,
    ]
    crashed, hanging, recurrent, absent, _ = records
    assert "SIGABRT" in crashed.reason
    assert "not done after 10 s" in hanging.reason
    assert "mine:recurrent" in recurrent.reason
    assert "does not support aten::set_" in recurrent.reason
    assert "allowed" in recurrent.reason
    assert "\n" not in recurrent.reason
    with pytest.raises(WrongInputError, match="mine:recurrent"):
        countable(records)
    with pytest.raises(WrongInputError, match="mine:absent"):
        countable((absent,))


@needs_simulator
def test_the_events_of_the_counted_step_are_written(tmp_path):
    path = tmp_path / "events.jsonl"
    (record,) = count_all([case("tuned")], events=path)
    assert record.outcome is Outcome.OK
    recording = Recording.read(path)
    assert recording.devices == 4
    assert {event.name for event in recording.events if type(event).__name__ == "Mark"} == set(Phase)


@pytest.mark.parametrize("name", ["", "absent/events.jsonl"])
def test_an_events_file_that_cannot_be_written_is_refused_before_counting(tmp_path, name):
    with pytest.raises(WrongInputError, match=r"events: .*allowed: a file"):
        count_all([case("tuned")], events=tmp_path / name, launch=lambda *_: pytest.fail("launched"))


def test_a_child_that_fails_as_a_whole_raises_with_its_last_lines():
    with pytest.raises(ChildError, match=r"counting failed: ended with exit status 1\nno torch"):
        count_all([case("naive")], launch=lambda *_: ended(1, tail=b"no torch\n"))


def test_the_child_sees_no_gpu_and_has_a_fixed_hash_seed():
    assert {"PYTHONHASHSEED=0", "CUDA_VISIBLE_DEVICES="} <= set(COUNTER.command)
    assert COUNTER.command.index(sys.executable) > COUNTER.command.index("CUDA_VISIBLE_DEVICES=")
    assert count_all([], launch=lambda *_: pytest.fail("launched")) == ()
