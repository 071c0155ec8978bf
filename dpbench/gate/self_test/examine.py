"""The gate's self-test from what was asked to what it says, which the gates that follow cite."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from dpbench.errors import GateError, ReportedError
from dpbench.gate.evidence import self_test_path, trials_path, write_self_test
from dpbench.gate.history import machine_of
from dpbench.gate.prepare import Asked, to_be_timed
from dpbench.gate.revisions import Repository, gate_folder
from dpbench.gate.self_test.inject import plant
from dpbench.gate.self_test.record import Bench, one_core, record
from dpbench.gate.self_test.result import SelfTest, result_of
from dpbench.gate.self_test.trials import Trial, read_trials
from dpbench.gate.settings import Settings
from dpbench.gate.take_round import take_round
from dpbench.results.record import Environment
from dpbench.run.launch import launch
from dpbench.run.runner import Launcher
from dpbench.run.wrapper_of import has_wrapper


def examine(
    asked: Asked, rounds: int, gates: int, *, launch: Launcher = launch, progress: Callable[[str], object]
) -> SelfTest:
    """With the wrapper of `asked.base` against itself, and against itself made slower. Raises GateError."""
    repository = Repository(Path.cwd())
    commit = str(repository.resolve("--base", asked.base).commit)
    try:
        lanes, settings = to_be_timed(repository, asked.settings, launch)
    except ReportedError as error:
        raise GateError(" ".join(str(error).split())) from error
    if not one_core(settings):
        raise GateError(
            'benchmarks: all use all cores, where nothing is planted; allowed: at least one with cores = "one"'
        )
    with gate_folder() as folder:
        base, planted = folder / "base", folder / "planted"
        for tree in (base, planted):
            repository.write_commit(commit, tree)
        if not has_wrapper(planted):
            raise GateError(f"--base: {asked.base!r} has no wrapper to plant a slowdown in; allowed: one that has")
        plant(planted)
        bench = Bench(settings, lanes, base, planted, launch, asked.budget_s)
        path = trials_path(asked.results, socket.gethostname())
        progress("looking at this machine")
        there = read_trials(path)
        _check_of_these_benchmarks(there, settings, path)
        _check_of_this_machine(there, _here(bench), path)
        trials = record(bench, path, rounds, gates, progress)
    progress("drawing gates from the recorded rounds")
    found = result_of(trials, settings, asked.budget_s)
    write_self_test(self_test_path(asked.results, found.environment), found)
    return found


def _check_of_these_benchmarks(trials: Sequence[Trial], settings: Settings, path: Path) -> None:
    recorded, asked = {name for trial in trials for name in trial.rounds}, {each.name for each in settings.benchmarks}
    if recorded and recorded != asked:
        raise GateError(
            f"{path}: has trials of {', '.join(sorted(recorded))}; allowed: those of {', '.join(sorted(asked))}, "
            "so move it away"
        )


def _here(bench: Bench) -> Environment:
    """What a round that is not kept says of this machine."""
    taken = take_round(one_core(bench.settings)[:1], bench.sides({}), 0, bench.lanes, bench.launch)
    assert taken.environment is not None
    return taken.environment


def _check_of_this_machine(trials: Sequence[Trial], here: Environment, path: Path) -> None:
    """Machines may have one name; what was recorded on another says nothing of this one."""
    this = machine_of(here).model_dump()
    for other in (machine_of(trial.environment).model_dump() for trial in trials):
        if unlike := next((name for name, value in this.items() if other[name] != value), None):
            differs = f"{unlike} {other[unlike]}, here {this[unlike]}"
            raise GateError(
                f"{path}: has trials of another machine of this name ({differs}); allowed: this one's, so move it away"
            )
