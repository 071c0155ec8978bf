"""Measure alone, as rank 0, or as one of the other ranks: whatever the launcher's variables say."""

from collections.abc import Callable, Mapping
from functools import partial

from dpbench.errors import ExitCode
from dpbench.run.launch import launch
from dpbench.run.launched.agreement import facts_of_this_rank
from dpbench.run.launched.follow import follow
from dpbench.run.launched.lanes import plan_world
from dpbench.run.launched.lead import listening
from dpbench.run.launched.world import read_world
from dpbench.run.runner import Launcher
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.plan import Plan, plan
from dpbench.sweep.spec import Spec

Planner = Callable[[Spec, MachineInfo], Plan]


def on_all_ranks(
    environment: Mapping[str, str],
    make_spec: Callable[[], Spec],
    measure: Callable[[Spec, Planner, Launcher], ExitCode],
) -> ExitCode:
    """Call `measure` in rank 0, with the spec, its planner, and the function that launches a child on every rank.

    The other ranks follow until rank 0 ends, and print nothing. Without a launcher this process measures alone.
    Raises errors of `make_spec` and `measure` in rank 0 only, WorldError, and those of `Followers.agree`.
    """
    world = read_world(environment)
    if world is None:
        return measure(make_spec(), plan, launch)
    if world.rank:
        return follow(world, make_spec)
    with listening(world) as followers:
        spec = make_spec()
        followers.agree(facts_of_this_rank(world, spec))
        return measure(spec, partial(plan_world, world=world), followers.launch)
