"""Plans of faults."""

import os

import pytest

from dpbench.elastic import training_runs
from dpbench.elastic.elastic_record import EventKind, FaultKind
from dpbench.elastic.request import check_checkpoints, check_plan, draw_plan, parse_kinds, parse_plan
from dpbench.elastic.run_files import EventLog, read_events
from dpbench.elastic.training_runs import run_elastic
from dpbench.errors import WrongInputError
from tests.elastic.making import SETTINGS, made_records


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
    check_plan(SETTINGS.model_copy(update={"plan": plan, "steps": 8, "max_restarts": 6}))
    assert all(fault.step >= 1 for fault in plan)


def test_a_rank_that_joined_can_fail():
    check_plan(SETTINGS.model_copy(update={"plan": parse_plan("join@1,kill@2:2")}))


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WrongInputError, match=r"^checkpoints: '.*\\udcff' holds what cannot be printed; allowed: "):
        check_checkpoints(tmp_path / os.fsdecode(b"\xff"))
    assert not list(tmp_path.glob("*\udcff"))
    with pytest.raises(WrongInputError, match=r"^checkpoints: .* cannot be written: Not a directory; allowed: "):
        check_checkpoints(tmp_path / "file" / "folder")


def test_events_of_several_processes_are_merged_and_a_torn_line_is_left_out(tmp_path):
    first, second = EventLog(tmp_path, rank=0), EventLog(tmp_path, rank=1)
    first.mark(EventKind.STEP, step=0)
    second.mark(EventKind.STEP, step=1)
    first.mark(EventKind.STEP, step=2)
    with next(tmp_path.glob("rank-0-*")).open("ab") as file:
        file.write(b'{"at_ns": 4')
    assert [(event.rank, event.step) for event in read_events(tmp_path)] == [(0, 0), (1, 1), (0, 2)]


def test_checkpoints_are_inside_the_given_folder_until_the_end(tmp_path, monkeypatch):
    folders = []

    def trained(job, *_):
        assert job.checkpoints.is_dir()
        folders.append(job.checkpoints.parents[1])
        return made_records()[0]

    monkeypatch.setattr(training_runs, "train_once", trained)
    settings = SETTINGS.model_copy(update={"plan": parse_plan("kill@2:1")})
    run_elastic(settings, "run", 1.0, tmp_path, keep=lambda _: None, say=lambda _: None)
    assert folders == [tmp_path, tmp_path]
    assert list(tmp_path.iterdir()) == []
