"""Python calls of a step. For simulated devices and ranks see tests/jobs/test_count.py."""

import gc

import pytest
import torch

from dpbench.cases.case import Case
from dpbench.measure import count_step
from dpbench.measure.ranks.team import Team
from dpbench.measure.session import Session
from dpbench.records.count_record import Phase
from dpbench.variants.registry import variant_of


@pytest.fixture(autouse=True)
def _restored():
    threads = torch.get_num_threads()
    yield
    gc.enable()
    torch.set_num_threads(threads)


def case(**changes):
    return Case(
        **{"variant": "tuned", "workload": "mlp/tiny", "batch": 8, "devices": ("cpu",) * 2, "threads": 1, **changes}
    )


def count(**changes):
    counts, recording, _ = count_step.count(case(**changes), lambda _: Team())
    assert recording is None
    return {phase: of_phase.python_calls for phase, of_phase in counts.phases.items()}


def test_the_third_step_is_counted_phase_by_phase(monkeypatch):
    phases = []
    train = Session._train

    def recorded(self, enter=None):
        phases.append([])
        if enter is None:
            return train(self)
        return train(self, lambda phase: (phases[-1].append(phase), enter(phase)))

    monkeypatch.setattr(Session, "_train", recorded)
    assert set(count()) == set(Phase)
    assert phases == [[], [], list(Phase)]


def test_more_lanes_take_more_calls_and_the_optimiser_none():
    two, four = count(), count(devices=("cpu",) * 4)
    assert four[Phase.FORWARD] > two[Phase.FORWARD]
    assert four[Phase.OPTIMISER] == two[Phase.OPTIMISER]


def test_inference_has_one_phase_the_forward():
    assert set(count(mode="infer", variant="naive")) == {Phase.FORWARD}


def test_tuned_dispatches_in_sequence():
    """Calls in threads that existed before the count would be missing."""
    wrapped = variant_of(count_step._counted(case().variant)).wrap(torch.nn.Linear(2, 2), [torch.device("cpu")] * 2)
    assert wrapped.policy.dispatch == "sequence"
