"""Measure alone, as rank 0, or as another rank, whatever the launcher's variables say."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from dpbench.cases.machine_info import MachineInfo
from dpbench.cases.names import format_devices
from dpbench.cases.plan import Plan, plan
from dpbench.cases.spec import Spec
from dpbench.errors import ExitCode
from dpbench.jobs.launched.agreement import facts_of_this_rank
from dpbench.jobs.launched.lead import SILENCE_S, follow, listening
from dpbench.jobs.launched.world import World, WorldError, read_world
from dpbench.jobs.round import JobRunner, RoundProcesses


def plan_world(spec: Spec, machine: MachineInfo, world: World) -> Plan:
    """All machines are taken to be like machine 0, `machine`.

    Raises WrongInputError, and WorldError if the lanes asked for are not one for each rank.
    """
    per_rank = tuple(variant for variant in spec.variants if variant.is_per_rank)
    other_variants = tuple(variant for variant in spec.variants if not variant.is_per_rank)
    lanes = local_lanes(machine, world.local_size)
    _check(spec, lanes * world.machines)
    on_all = spec.model_copy(update={"variants": per_rank, "devices": (lanes * world.machines,)})
    on_one = spec.model_copy(update={"variants": other_variants, "devices": (lanes,)})
    one, all_ = plan(on_one, machine), plan(on_all, machine, world.machines)
    return Plan(tuple(dict.fromkeys((*one.cases, *all_.cases))), (*one.skipped, *all_.skipped))


def local_lanes(machine: MachineInfo, count: int) -> tuple[str, ...]:
    lanes = tuple(accelerator.device for accelerator in machine.accelerators)
    if lanes and len(lanes) < count:
        raise WorldError(
            f"LOCAL_WORLD_SIZE: {count} is more than this machine's {len(lanes)} devices; allowed: 1 to {len(lanes)}"
        )
    return lanes[:count] or ("cpu",) * count


def _check(spec: Spec, lanes: tuple[str, ...]) -> None:
    for devices in spec.devices or ():
        if devices != lanes:
            raise WorldError(
                f"devices: {format_devices(devices)!r} is not one lane for each rank; "
                f"allowed: {format_devices(lanes)!r}, or no devices"
            )


@dataclass(frozen=True)
class Lead:
    spec: Spec
    runner: JobRunner
    world: World | None = None

    def plan(self, machine: MachineInfo) -> Plan:
        """Raises WorldError and WrongInputError."""
        return plan(self.spec, machine) if self.world is None else plan_world(self.spec, machine, self.world)


@contextmanager
def leading(environment: Mapping[str, str], make_spec: Callable[[], Spec]) -> Iterator[Lead | ExitCode]:
    """Yield what measures, if this process is alone or rank 0; else follow rank 0, and yield the exit code.

    Raises errors of `make_spec` in rank 0 only, WorldError, and those of `Followers.agree`.
    """
    try:
        world = read_world(environment)
    except WorldError as error:
        if not error.is_reported:
            time.sleep(SILENCE_S)  # rank 0 reports first, and then some launchers end this process
        raise
    if world is None:
        yield Lead(make_spec(), RoundProcesses())
        return

    def checked_spec() -> Spec:
        if world.fault is not None:
            raise WorldError(world.fault)
        return make_spec()

    if world.rank:
        yield follow(world, checked_spec)
        return
    with listening(world) as followers:
        spec = checked_spec()
        followers.agree(facts_of_this_rank(world, spec))
        yield Lead(spec, followers, world)
