"""The gate's self-test from what was asked to what it says, which the gates that follow cite."""

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from dpbench.gate.errors import GateError
from dpbench.gate.evidence import self_test_path, trials_path, write_self_test
from dpbench.gate.history_line import machine_of
from dpbench.gate.plant import plant
from dpbench.gate.prepare import Asked, to_be_timed
from dpbench.gate.revisions import Repository, gate_folder
from dpbench.gate.self_test import Bench, one_core, record
from dpbench.gate.self_test_result import SelfTest, result_of
from dpbench.gate.settings import SettingsError
from dpbench.gate.trial import Trial
from dpbench.run.ask import ProbeError
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
    except (SettingsError, ProbeError) as error:
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
        trials = record(bench, trials_path(asked.results, socket.gethostname()), rounds, gates, progress)
    _check_of_one_machine(trials, trials_path(asked.results, socket.gethostname()))
    progress("drawing gates from the recorded rounds")
    found = result_of(trials, settings, asked.budget_s)
    write_self_test(self_test_path(asked.results, found.environment), found)
    return found


def _check_of_one_machine(trials: Sequence[Trial], path: Path) -> None:
    """Machines may have one name; what was recorded on several says nothing of any."""
    machines = {machine_of(trial.environment) for trial in trials}
    if len(machines) > 1:
        raise GateError(f"{path}: holds trials of {len(machines)} machines; allowed: one, so move the file away first")
