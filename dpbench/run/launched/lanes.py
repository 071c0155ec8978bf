"""The cases of a sweep on several machines: variants with ranks on all lanes, the others on machine 0. Pure."""

from dpbench.run.launched.world import World, WorldError
from dpbench.sweep.devices import format_devices
from dpbench.sweep.machine_info import MachineInfo
from dpbench.sweep.plan import Plan, plan
from dpbench.sweep.spec import Spec


def plan_world(spec: Spec, machine: MachineInfo, world: World) -> Plan:
    """Return the cases of the spec. All machines are taken to be like machine 0, `machine`.

    Raises WorldError if the spec asks for lanes that are not one for each rank, and PlanError.
    """
    per_rank = tuple(variant for variant in spec.variants if variant.is_per_rank)
    others = tuple(variant for variant in spec.variants if not variant.is_per_rank)
    lanes = local_lanes(machine, world.local_size)
    _check(spec, lanes * world.machines)
    on_all = spec.model_copy(update={"variants": per_rank, "devices": (lanes * world.machines,)})
    on_one = spec.model_copy(update={"variants": others, "devices": (lanes,)})
    one, all_ = plan(on_one, machine), plan(on_all, machine, world.machines)
    return Plan(tuple(dict.fromkeys((*one.cases, *all_.cases))), (*one.skipped, *all_.skipped))


def local_lanes(machine: MachineInfo, count: int) -> tuple[str, ...]:
    """Return a device for each rank of a machine: its first accelerators, or lanes on the CPU if it has none."""
    found = tuple(each.device for each in machine.accelerators)
    if found and len(found) < count:
        raise WorldError(
            f"LOCAL_WORLD_SIZE: {count} is more than this machine's {len(found)} devices; allowed: 1 to {len(found)}"
        )
    return found[:count] or ("cpu",) * count


def _check(spec: Spec, lanes: tuple[str, ...]) -> None:
    for devices in spec.devices or ():
        if devices != lanes:
            raise WorldError(
                f"devices: {format_devices(devices)!r} is not one lane for each rank; "
                f"allowed: {format_devices(lanes)!r}, or no devices"
            )
