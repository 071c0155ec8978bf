"""The command that measures schemes of a setting again, with a budget that suffices for its rounds. Pure."""

import shlex
from collections.abc import Sequence
from math import ceil

from dpbench.cases.case import Case
from dpbench.cases.devices import format_devices
from dpbench.processes.budget import guessed_cost
from dpbench.records.summary import Summary
from dpbench.stats.least_samples import least_seconds, seconds_of_least

_SPARE = 1.3
"""Budgets are this many times what the rounds should take: rounds differ, and whole rounds are dropped first."""


def next_command(summaries: Sequence[Summary], rounds: int) -> str:
    """Return ``dpbench compare ...`` for the schemes of these summaries, which have times of one setting.

    A module that Python's `dpbench.compare` wrote, or several machines, cannot be named on one command line. Then the
    text is ``the same with --rounds ...``.
    """
    setting = summaries[0].case
    limits = f"--rounds {rounds} --budget {_budget_s(summaries, rounds):.0f}s"
    if setting.machines > 1 or setting.workload.startswith("given:"):
        return f"the same with {limits}"
    variants = shlex.quote(",".join(summary.case.variant for summary in summaries))
    return f"dpbench compare --variants {variants} {_options(setting)} {limits}"


def _options(setting: Case) -> str:
    plain = {
        "workloads": setting.workload,
        "batch": setting.batch,
        "devices": format_devices(setting.devices),
        "threads": setting.threads,
    }
    defaults = Case.model_fields
    others = {
        "modes": "mode",
        "dtypes": "dtype",
        "data": "data",
        "seed": "seed",
        "steps-per-sample": "steps_per_sample",
    }
    differing = {
        option: value for option, name in others.items() if (value := getattr(setting, name)) != defaults[name].default
    }
    return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in {**plain, **differing}.items())


def _budget_s(summaries: Sequence[Summary], rounds: int) -> float:
    """Return seconds that suffice for the rounds, the single-device baseline among their cases, in tens."""
    cost = guessed_cost([summary.case for summary in (*summaries, summaries[0])])
    sampled_s = [_sampled_s(summary) for summary in summaries]
    return 10 * ceil(_SPARE * rounds * (cost.fixed_s + sum(sampled_s) + max(sampled_s)) / 10)


def _sampled_s(summary: Summary) -> float:
    samples_s = [step_s * summary.case.steps_per_sample for times_s in summary.step_times_s for step_s in times_s]
    return seconds_of_least(samples_s, least_seconds(summary.case.devices))
