"""Train many times under torchrun, each time with one fault of another seed, and report how many runs recovered.

python -m benchmarks.elastic_soak --runs 20 --membership 4 --output results/elastic-soak.md

All runs have one model, one seed of samples and one number of steps, so one undisturbed run judges them all. With
`--membership`, as many more runs have ranks that leave and join, in float64, with an undisturbed run of their own.
The page is written anew after each run.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from dpbench.elastic.elastic_record import ElasticRecord, ElasticSettings, RunScheme
from dpbench.elastic.outage import Outage, OutagePart, outages_of
from dpbench.elastic.request import elastic_settings
from dpbench.elastic.run import elastic_job, train_once
from dpbench.elastic.same_end import is_same_to_the_bit, loss_difference
from dpbench.results.record import Outcome

_TIMEOUT_S = 300.0
_MEMBERSHIP_PLANS = ("leave@11:1,join@21", "leave@8:0,join@17", "join@9,leave@18:1", "join@6,kill@14:2,leave@23:0")


@dataclass(frozen=True)
class Soak:
    """The runs of one kind, and the undisturbed run that judges them."""

    title: str
    undisturbed: ElasticRecord
    records: Sequence[ElasticRecord] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--membership", type=int, default=len(_MEMBERSHIP_PLANS))
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    command = f"python -m benchmarks.elastic_soak {shlex.join(sys.argv[1:])}"
    soaks: list[Soak] = []
    kills = [soak_settings(draw_seed) for draw_seed in range(options.runs)]
    plans = [_MEMBERSHIP_PLANS[n % len(_MEMBERSHIP_PLANS)] for n in range(options.membership)]
    changes = [soak_settings(0, plan=plan, dtype="float64") for plan in plans]
    for title, settings in (("One killed worker", kills), ("Ranks that leave and join", changes)):
        if settings:
            soaks.append(_undisturbed(title, settings[0]))
        for each in settings:
            soak = soaks[-1]
            record = _train(each, RunScheme.ELASTIC, soak.undisturbed)
            soaks[-1] = Soak(soak.title, soak.undisturbed, [*soak.records, record])
            options.output.write_text(soak_page(soaks, command))
            print(f"{plan_of(record)}: {record.outcome}, {record.duration_s:.0f} s", flush=True)
    if not all(is_recovered(record) for soak in soaks for record in soak.records):
        sys.exit(1)


def soak_settings(draw_seed: int, plan: str | None = None, dtype: str = "float32") -> ElasticSettings:
    """Return the settings of one run. `draw_seed` draws the fault; the samples are those of seed 0 in all runs."""
    settings = elastic_settings(
        workload="mlp/tiny",
        ranks=2,
        steps=30,
        batch=64,
        dtype=dtype,
        checkpoint_every=5,
        backend="torch.save",
        max_restarts=9,
        hang_timeout="60s",
        seed=draw_seed,
        faults="kill",
        plan=plan,
    )
    return settings.model_copy(update={"seed": 0})


def _undisturbed(title: str, settings: ElasticSettings) -> Soak:
    record = _train(settings.model_copy(update={"plan": ()}), RunScheme.UNDISTURBED, None)
    if record.outcome is not Outcome.OK:
        sys.exit(f"the undisturbed run failed: {record.reason}")
    return Soak(title, record)


def _train(settings: ElasticSettings, scheme: RunScheme, undisturbed: ElasticRecord | None) -> ElasticRecord:
    with TemporaryDirectory(prefix="dpbench-soak-") as own:
        checkpoints, events = Path(own) / "checkpoints", Path(own) / "events"
        checkpoints.mkdir()
        events.mkdir()
        job = elastic_job(settings, scheme, checkpoints, events)
        return train_once(job, "soak", _TIMEOUT_S, undisturbed, Path(own))


def is_recovered(record: ElasticRecord) -> bool:
    """Return whether the run caught up after every fault and ended as the undisturbed one."""
    return record.outcome is Outcome.OK and all(outage.span for outage in outages_of(record.events))


def plan_of(record: ElasticRecord) -> str:
    return ", ".join(map(str, record.settings.plan))


def soak_page(soaks: Sequence[Soak], command: str) -> str:
    """Return the page: where it was measured, and for each kind a summary and a row for each fault."""
    environment = soaks[0].undisturbed.environment
    where = f"{environment.cores}-core {environment.cpu_model}, {environment.os}" if environment else "unknown machine"
    versions = f"Python {environment.python}, torch {environment.torch}" if environment else ""
    commit = f", commit {environment.commit[:12]}" if environment and environment.commit else ""
    lines = [
        "# Elastic runs that recover",
        "",
        f"`{command}`, {datetime.now(UTC):%Y-%m-%d}: {where}, {versions}{commit}.",
        f"The machine's load, over 15 minutes at the end, was {os.getloadavg()[2]:.1f}.",
        "Times are in seconds. Each run trains `mlp/tiny` for 30 steps with a checkpoint every 5, from 2 ranks on.",
    ]
    for soak in soaks:
        lines += ["", f"## {soak.title}", "", *_summary(soak), "", *_table(soak)]
        lines += [f"\n{plan_of(each)}: {each.outcome}: `{each.reason}`" for each in soak.records if each.reason]
    return "\n".join(lines) + "\n"


def _summary(soak: Soak) -> Iterator[str]:
    recovered = [record for record in soak.records if is_recovered(record)]
    yield f"{len(recovered)} of {len(soak.records)} runs recovered."
    expected = soak.undisturbed.done
    ends = [record.done for record in recovered if record.done is not None]
    if expected is None or not ends:
        return
    same = sum(is_same_to_the_bit(done, expected) for done in ends)
    yield f"In {same} of them loss and parameters equal the undisturbed run's to the last bit."
    if same < len(ends):
        most = max(loss_difference(done, expected) for done in ends)
        dtype = soak.undisturbed.settings.dtype
        yield f"The largest difference of a final loss ({dtype}) is {most:.1e}; 1e-10 is allowed in float64."


def _table(soak: Soak) -> Iterator[str]:
    yield f"| plan | outcome | fault | outage | {' | '.join(OutagePart)} | unstamped | steps again | rounds |"
    yield f"|---|---|---|{'---|' * (len(OutagePart) + 4)}"
    times: list[Sequence[float | None]] = []
    for record in soak.records:
        for outage in outages_of(record.events):
            times.append(_times_s(outage))
            again = "-" if outage.redone_steps is None else str(outage.redone_steps)
            name = f"{outage.fault.detail}@{outage.fault.step}"
            yield f"| {plan_of(record)} | {record.outcome} | {name} | {_cells(times[-1])} | {again} | {outage.rounds} |"
    if times:
        yield f"| median | | | {_cells([_median(column) for column in zip(*times, strict=True)])} | | |"


def _times_s(outage: Outage) -> Sequence[float | None]:
    """Return the seconds of the outage, of its parts, and of what no part covers."""
    parts = [outage.parts[part].seconds if part in outage.parts else None for part in OutagePart]
    return [outage.span.seconds if outage.span else None, *parts, outage.unstamped_s]


def _cells(times_s: Sequence[float | None]) -> str:
    return " | ".join("-" if time_s is None else f"{time_s:.3f}" for time_s in times_s)


def _median(times_s: Sequence[float | None]) -> float | None:
    found = [time_s for time_s in times_s if time_s is not None]
    return median(found) if found else None


if __name__ == "__main__":
    main()
