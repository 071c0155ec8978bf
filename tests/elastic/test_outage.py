"""Outages from hand-made events."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.elastic.child.agent import torchrun_options
from dpbench.elastic.elastic_record import EventKind, RunScheme
from dpbench.elastic.outage import OutagePart, outages_of, steps_done, steps_kept, steps_per_s, why_other_end
from dpbench.elastic.request import parse_plan
from dpbench.elastic.run_files import ElasticJob, in_time
from tests.elastic.making import SETTINGS, event, one_outage, steps, two_rounds


def test_each_part_ends_where_the_next_begins():
    (outage,) = outages_of(one_outage())
    assert {part: span.seconds for part, span in outage.parts.items()} == pytest.approx(
        {
            OutagePart.NOTICING: 1.0,
            OutagePart.STOPPING: 0.5,
            OutagePart.RENDEZVOUS: 2.75,
            OutagePart.START: 4.75,
            OutagePart.RESTORE: 1.5,
            OutagePart.REDONE: 2.0,
        }
    )
    assert outage.span.seconds == pytest.approx(12.5)  # step 6 is taken again at 22.5
    assert (outage.redone_steps, outage.rounds) == (2, 1)


def test_rates_leave_the_outage_out():
    (outage,) = outages_of(one_outage())
    assert outage.steps_per_s_before == pytest.approx(1.0)
    assert outage.steps_per_s_after == pytest.approx(1.0)


def test_a_checkpoint_of_all_steps_leaves_none_to_do_again():
    events = [e.model_copy(update={"step": 7}) if e.kind is EventKind.RESTORE_END else e for e in one_outage()]
    (outage,) = outages_of(events)
    assert outage.redone_steps == 0
    assert OutagePart.REDONE not in outage.parts
    assert outage.span.seconds == pytest.approx(10.5)


def test_a_run_that_does_not_recover_has_the_parts_up_to_its_end():
    events = [e for e in one_outage() if e.at_ns < 15e9]
    (outage,) = outages_of(events)
    assert set(outage.parts) == {OutagePart.NOTICING, OutagePart.STOPPING, OutagePart.RENDEZVOUS}
    assert outage.span is None


def test_a_second_fault_ends_the_window_of_the_first():
    second = [
        event(at_s, kind, **fields) for at_s, kind, fields in [(40, EventKind.FAULT, {"step": 20, "detail": "oom"})]
    ]
    first, last = outages_of([*one_outage(), *second])
    assert first.span.seconds == pytest.approx(12.5)
    assert (last.fault.detail, last.span, dict(last.parts)) == ("oom", None, {})


def test_a_run_without_faults_has_no_outage():
    assert outages_of(steps(0, 0, 5)) == ()
    assert outages_of(()) == ()


def test_counts_of_steps():
    assert steps_done(one_outage()) == 20
    assert steps_kept(one_outage()) == 5
    assert steps_per_s(steps(0, 0, 3, every_s=0.5)) == pytest.approx(2.0)
    assert steps_per_s(steps(0, 0, 2)) is None


@st.composite
def any_events(draw):
    """Events of two ranks and two agents in any order, after a fault from which most runs recover."""
    who = st.sampled_from([(None, 0), (None, 1), (0, 0), (1, 1)])
    kinds, steps_done = st.sampled_from(EventKind), st.integers(0, 3)
    drawn = draw(st.lists(st.tuples(st.integers(0, 60), kinds, who, steps_done), max_size=40))
    others = [event(at_s, kind, rank, agent=agent, step=step) for at_s, kind, (rank, agent), step in drawn]
    fault, held = draw(steps_done), draw(steps_done)
    restored = [
        event(draw(st.integers(10, 60)), EventKind.RESTORE_END, step=held),
        event(draw(st.integers(10, 60)), EventKind.STEP, step=fault - 1 if fault else None),
    ]
    return in_time([*others, *restored, event(draw(st.integers(0, 10)), EventKind.FAULT, step=fault)])


@given(any_events())
def test_the_parts_add_up_to_the_outage_in_any_order_of_events(events):
    for outage in outages_of(events):
        spans = list(outage.parts.values())
        assert list(outage.parts) == [part for part in OutagePart if part in outage.parts]
        assert [span.begin_ns for span in spans] == [outage.fault.at_ns, *(span.end_ns for span in spans)][: len(spans)]
        assert all(span.begin_ns <= span.end_ns for span in spans)
        if outage.span is not None:
            assert sum(span.end_ns - span.begin_ns for span in spans) == outage.span.end_ns - outage.span.begin_ns


def test_agents_that_stop_late_and_further_rounds_do_not_overlap():
    (outage,) = outages_of(two_rounds())
    seconds = {part: span.seconds for part, span in outage.parts.items()}
    assert seconds[OutagePart.STOPPING] == pytest.approx(2.5)
    assert seconds[OutagePart.RENDEZVOUS] == pytest.approx(0.75)
    assert seconds[OutagePart.START] == pytest.approx(4.75)
    assert sum(seconds.values()) == pytest.approx(outage.span.seconds)


def test_rounds_are_counted_for_the_agent_with_most():
    """Agent 0 may have left."""
    later = [event(14.3 + n, EventKind.START_BEGIN, rank=None, agent=1) for n in range(3)]
    (outage,) = outages_of(in_time([*one_outage(), *later]))
    assert outage.rounds == 3


EXPECTED = event(9, EventKind.DONE, loss=1.5, digest="ab")


def settings(plan: str, dtype: str = "float64"):
    return SETTINGS.model_copy(update={"plan": parse_plan(plan), "dtype": dtype})


def why(loss: float, digest: str, plan: str, dtype: str = "float64") -> str | None:
    return why_other_end(event(9, EventKind.DONE, loss=loss, digest=digest), EXPECTED, settings(plan, dtype))


@pytest.mark.parametrize(
    ("loss", "digest", "plan", "dtype"),
    [
        (1.5, "ab", "kill@3:1", "float64"),
        (1.5 + 9e-11, "cd", "leave@3:1", "float64"),
        (1.5 - 9e-5, "cd", "leave@3:1,join@5", "float32"),
    ],
)
def test_ends_that_are_allowed(loss, digest, plan, dtype):
    assert why(loss, digest, plan, dtype) is None


@pytest.mark.parametrize(
    ("loss", "digest", "plan", "reason"),
    [
        (
            math.nextafter(1.5, 2),
            "ab",
            "kill@3:1",
            "the loss is 1.5; that of the undisturbed run is 1.5; the difference is 2.2e-16",
        ),
        (1.5, "cd", "kill@3:1", "the loss is equal, 1.5, but the parameters differ"),
        (1.5 + 2e-10, "cd", "leave@3:1", "the difference is 2.0e-10, and 1e-10 is allowed in float64"),
        (math.nan, "cd", "join@3", "the difference is inf"),
    ],
)
def test_ends_that_are_not(loss, digest, plan, reason):
    assert reason in why(loss, digest, plan)


@pytest.mark.parametrize(
    ("plan", "worlds", "options"),
    [("kill@3:1", (2, 2), "--nproc-per-node 2"), ("join@3,leave@4:2,leave@5:0", (2, 3, 2, 1), "--nnodes 1:3")],
)
def test_the_elastic_run_has_as_many_agents_as_the_plan_has_ranks(tmp_path, plan, worlds, options):
    planned = settings(plan)
    assert planned.worlds == worlds
    job = ElasticJob(scheme=RunScheme.ELASTIC, settings=planned, checkpoints=tmp_path, events=tmp_path)
    assert job.has_fleet == (len(set(worlds)) > 1)
    endpoint = "127.0.0.1:9" if job.has_fleet else None
    assert options in " ".join(torchrun_options(job.model_copy(update={"endpoint": endpoint})))
    plain = job.model_copy(update={"scheme": RunScheme.UNDISTURBED})
    assert (plain.has_fleet, plain.faults) == (False, ())
