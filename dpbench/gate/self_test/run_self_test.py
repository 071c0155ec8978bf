"""Run a self-test: from a request to a result, which later gates cite."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from dpbench.errors import GateError, ReportedError
from dpbench.gate.false_alarms import self_test_path, trials_path, write_self_test
from dpbench.gate.history import machine_of
from dpbench.gate.prepare import GateRequest, timed_settings
from dpbench.gate.revisions import Repository, gate_folder
from dpbench.gate.self_test.inject import inject_slowdown
from dpbench.gate.self_test.record import Setup, one_core, record_trials
from dpbench.gate.self_test.result import SelfTest, result_of
from dpbench.gate.self_test.trials import SelfTestTrial, read_trials
from dpbench.gate.settings import Settings
from dpbench.gate.take_round import take_round
from dpbench.results.record import Environment
from dpbench.run.launch import Launcher, launch
from dpbench.run.wrapper_of import has_wrapper


def run_self_test(
    request: GateRequest, rounds: int, gates: int, *, launch: Launcher = launch, progress: Callable[[str], object]
) -> SelfTest:
    """Compare the wrapper of `request.base` with itself, and with itself made slower.

    Writes the result into the results folder and returns it. `rounds` and `gates` are for each condition. Raises
    GateError.
    """
    repository = Repository(Path.cwd())
    commit = str(repository.resolve("--base", request.base).commit)
    try:
        lanes, settings = timed_settings(repository, request.settings, launch)
    except ReportedError as error:
        raise GateError(" ".join(str(error).split())) from error
    if not one_core(settings):
        raise GateError(
            'benchmarks: all use all cores, where no slowdown is injected; allowed: at least one with cores = "one"'
        )
    with gate_folder() as folder:
        base, slowed = folder / "base", folder / "slowed"
        for side in (base, slowed):
            repository.write_commit(commit, side)
        if not has_wrapper(slowed):
            raise GateError(f"--base: {request.base!r} has no wrapper to inject a slowdown into; allowed: one that has")
        inject_slowdown(slowed)
        setup = Setup(settings, lanes, base, slowed, launch, request.budget_s)
        path = trials_path(request.results, socket.gethostname())
        progress("describing this machine")
        recorded = read_trials(path)
        _check_of_these_benchmarks(recorded, settings, path)
        _check_of_this_machine(recorded, _this_machine(setup), path)
        trials = record_trials(setup, path, rounds, gates, progress)
    progress("drawing gates from the recorded rounds")
    found = result_of(trials, settings, request.budget_s)
    write_self_test(self_test_path(request.results, found.environment), found)
    return found


def _check_of_these_benchmarks(trials: Sequence[SelfTestTrial], settings: Settings, path: Path) -> None:
    recorded, asked = {name for trial in trials for name in trial.rounds}, {each.name for each in settings.benchmarks}
    if recorded and recorded != asked:
        raise GateError(
            f"{path}: has trials of {', '.join(sorted(recorded))}; allowed: those of {', '.join(sorted(asked))}, "
            "so move it away"
        )


def _this_machine(setup: Setup) -> Environment:
    """Take a round only for the environment that it reports."""
    taken = take_round(one_core(setup.settings)[:1], setup.sides({}), 0, setup.lanes, setup.launch)
    assert taken.environment is not None
    return taken.environment


def _check_of_this_machine(trials: Sequence[SelfTestTrial], here: Environment, path: Path) -> None:
    """Raises GateError if a trial is of another machine: two may have the same host name."""
    this = machine_of(here).model_dump()
    for other in (machine_of(trial.environment).model_dump() for trial in trials):
        if unlike := next((name for name, value in this.items() if other[name] != value), None):
            differs = f"{unlike} {other[unlike]}, here {this[unlike]}"
            raise GateError(
                f"{path}: has trials of another machine of this name ({differs}); allowed: this one's, so move it away"
            )
