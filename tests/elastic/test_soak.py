"""Elastic runs with a random kill each, and with ranks that leave and join: all recover to the undisturbed end."""

import pytest

from dpbench.elastic.elastic_record import ElasticSettings, RunScheme
from dpbench.elastic.outage import is_same_to_the_bit, loss_difference, outages_of
from dpbench.elastic.request import elastic_settings
from dpbench.elastic.run_files import ElasticJob
from dpbench.elastic.training_runs import train_once
from dpbench.records.record import Outcome

CHANGES = ("leave@11:1,join@21", "leave@8:0,join@17", "join@9,leave@18:1", "join@6,kill@14:2,leave@23:0")
TIMEOUT_S = 300.0


def settings_of(draw_seed: int, plan: str | None = None, dtype: str = "float32") -> ElasticSettings:
    """Return the settings of one run. `draw_seed` draws the fault; the samples are those of seed 0 in all runs."""
    settings = elastic_settings(
        workload="mlp/tiny",
        ranks=2,
        steps=30,
        batch=64,
        dtype=dtype,
        checkpoint_every=5,
        checkpoint_format="torch.save",
        max_restarts=9,
        hang_timeout="60s",
        seed=draw_seed,
        faults="kill",
        plan=plan,
    )
    return settings.model_copy(update={"seed": 0})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A function that returns the undisturbed run of a dtype, made once."""
    made = {}

    def call(settings):
        if settings.dtype not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            plain = settings.model_copy(update={"plan": ()})
            made[settings.dtype] = trained(plain, RunScheme.UNDISTURBED, None, folder)
        return made[settings.dtype]

    return call


def trained(settings, scheme, undisturbed, folder):
    checkpoints, events = folder / "checkpoints", folder / "events"
    checkpoints.mkdir()
    events.mkdir()
    job = ElasticJob(scheme=scheme, settings=settings, checkpoints=checkpoints, events=events)
    record = train_once(job, "soak", TIMEOUT_S, undisturbed, folder)
    assert record.outcome is Outcome.OK, record.reason
    return record


@pytest.mark.exhaustive
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize(
    "settings",
    [*map(settings_of, range(20)), *(settings_of(0, plan=plan, dtype="float64") for plan in CHANGES)],
    ids=lambda settings: ",".join(map(str, settings.plan)),
)
def test_a_run_recovers(settings, undisturbed, tmp_path):
    plain = undisturbed(settings)
    record = trained(settings, RunScheme.ELASTIC, plain, tmp_path)
    assert all(outage.span for outage in outages_of(record.events))
    if settings.dtype == "float32":  # the number of ranks is the same, and so is the order of sums
        assert is_same_to_the_bit(record.done, plain.done)
    assert loss_difference(record.done, plain.done) <= 1e-10
