"""Plans of faults."""

import os

import pytest

from dpbench.elastic.elastic_record import EventKind, FaultKind
from dpbench.elastic.request import check_plan, claim_folder, draw_plan, parse_kinds, parse_plan
from dpbench.elastic.run_files import EventLog, read_events
from dpbench.errors import WrongInputError
from tests.elastic.making import SETTINGS


def test_a_plan_is_read_and_sorted():
    plan = parse_plan("join@40, oom@30:0, kill@12:1,leave@35:1")
    assert [str(fault) for fault in plan] == ["kill@12:1", "oom@30:0", "leave@35:1", "join@40"]


def test_a_drawn_plan_depends_on_its_arguments_alone():
    kinds = parse_kinds("kill,oom,hang,leave,join")
    drawn = draw_plan(3, 50, 4, kinds)
    assert drawn == draw_plan(3, 50, 4, kinds)
    assert [str(fault) for fault in drawn] != [str(fault) for fault in draw_plan(4, 50, 4, kinds)]
    assert [fault.kind for fault in drawn] == list(FaultKind)


@pytest.mark.parametrize("seed", range(50))
def test_a_drawn_plan_is_allowed(seed):
    plan = draw_plan(seed, 8, 2, parse_kinds("kill,oom,join,hang,leave,leave"))
    check_plan(plan, steps=8, ranks=2, max_restarts=6, batch=8)
    assert all(fault.step >= 1 for fault in plan)


def test_a_rank_that_joined_can_fail():
    check_plan(parse_plan("join@1,kill@2:2"), steps=20, ranks=2, max_restarts=2, batch=8)


def test_an_earlier_run_of_the_same_model_is_replaced(tmp_path):
    claim_folder(tmp_path, SETTINGS)
    (tmp_path / "elastic" / "steps-000000005.pt").touch()
    claim_folder(tmp_path, SETTINGS)
    assert list((tmp_path / "elastic").iterdir()) == []


def test_another_model_is_refused_and_kept(tmp_path):
    claim_folder(tmp_path, SETTINGS)
    (tmp_path / "elastic" / "steps-000000005.pt").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        WrongInputError, match=r"^checkpoints: .* holds checkpoints of another model, mlp/tiny in float32"
    ):
        claim_folder(tmp_path, SETTINGS.model_copy(update={"workload": "mlp/small"}))
    assert sorted(tmp_path.rglob("*")) == before


def test_other_files_are_refused_and_kept(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(WrongInputError, match=r"^checkpoints: .* holds other files, such as 'thesis.tex'; allowed: "):
        claim_folder(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WrongInputError, match=r"^checkpoints: '.*\\udcff' holds what cannot be printed; allowed: "):
        claim_folder(tmp_path / os.fsdecode(b"\xff"), SETTINGS)
    assert not list(tmp_path.glob("*\udcff"))
    with pytest.raises(WrongInputError, match=r"^checkpoints: .* cannot be written: Not a directory; allowed: "):
        claim_folder(tmp_path / "file" / "folder", SETTINGS)


def test_events_of_several_processes_are_merged_and_a_torn_line_is_left_out(tmp_path):
    first, second = EventLog(tmp_path, rank=0), EventLog(tmp_path, rank=1)
    second.mark(EventKind.STEP, step=1, at_ns=20)
    first.mark(EventKind.STEP, step=0, at_ns=10)
    first.mark(EventKind.STEP, step=2, at_ns=30)
    with next(tmp_path.glob("rank-0-*")).open("ab") as file:
        file.write(b'{"at_ns": 4')
    assert [(event.rank, event.step) for event in read_events(tmp_path)] == [(0, 0), (1, 1), (0, 2)]
