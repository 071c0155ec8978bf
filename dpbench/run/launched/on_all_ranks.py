"""Measure alone, as rank 0, or as one of the other ranks: whatever the launcher's variables say."""

import time
from collections.abc import Callable, Mapping
from functools import partial

from dpbench.errors import ExitCode
from dpbench.run.launched.agreement import facts_of_this_rank
from dpbench.run.launched.follow import SILENCE_S, follow
from dpbench.run.launched.lanes import plan_world
from dpbench.run.launched.lead import listening
from dpbench.run.launched.world import WorldError, read_world
from dpbench.run.rounds import JobRunner, RoundProcesses
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.plan import Plan, plan
from dpbench.sweep.spec import Spec

Planner = Callable[[Spec, MachineInfo], Plan]


def on_all_ranks(
    environment: Mapping[str, str],
    make_spec: Callable[[], Spec],
    measure: Callable[[Spec, Planner, JobRunner], ExitCode],
) -> ExitCode:
    """Call `measure` in rank 0, with the spec, its planner, and what runs a child on every rank.

    The other ranks follow until rank 0 ends, and print nothing. Without a launcher this process measures alone.
    Raises errors of `make_spec` and `measure` in rank 0 only, WorldError, and those of `Followers.agree`.
    """
    try:
        world = read_world(environment)
    except WorldError as error:
        if error.is_reported:
            raise
        time.sleep(SILENCE_S)
        return error.exit_code
    if world is None:
        return measure(make_spec(), plan, RoundProcesses())

    def checked_spec() -> Spec:
        if world.fault is not None:
            raise WorldError(world.fault)
        return make_spec()

    if world.rank:
        return follow(world, checked_spec)
    with listening(world) as followers:
        spec = checked_spec()
        followers.agree(facts_of_this_rank(world, spec))
        return measure(spec, partial(plan_world, world=world), followers)
