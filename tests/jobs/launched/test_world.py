"""The rank of a process, from the launcher's variables."""

import pytest

from dpbench.cases.machine_info import Accelerator, MachineInfo
from dpbench.cases.spec import from_options
from dpbench.jobs.launched.on_all_ranks import plan_world
from dpbench.jobs.launched.world import World, WorldError, read_world

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08,11]",
    "SLURM_JOB_ID": "4100123",
}


def test_torchruns_variables():
    assert read_world(TORCHRUN) == World(5, 8, 1, 4, "10.0.0.1", 29501)
    assert read_world(TORCHRUN).machines == 2


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("gpu[07-08,11]", "gpu07"),
        ("a,b", "a"),
        ("one", "one"),
        ("n[3,5]-ib,b", "n3-ib"),
        ("a,b[001,003],c", "a"),
        ("rack[0-1]n[2-3]", "rack0n2"),
    ],
)
def test_sruns_variables_and_its_first_host(hosts, first):
    world = read_world({**SRUN, "SLURM_STEP_NODELIST": hosts})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (3, 4, 1, 2)
    assert (world.address, world.port) == (first, 20123)


@pytest.mark.parametrize("size", ["1", ""])
def test_torchrun_with_one_process_measures_alone_under_srun_and_an_empty_size_is_none(size):
    own = {"RANK": "0", "WORLD_SIZE": size, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert read_world({**SRUN, **own}) is None
    assert read_world({"WORLD_SIZE": size}) is None


def test_the_users_own_address_and_port_are_taken_under_srun():
    world = read_world({**SRUN, "MASTER_ADDR": "head", "MASTER_PORT": "7000"})
    assert (world.address, world.port) == ("head", 7001)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WORLD_SIZE": "1", "RANK": "0"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # a batch script, which runs once
        {"RANK": "3"},
    ],
)
def test_one_process_is_no_world(environment):
    assert read_world(environment) is None


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"RANK": None}, "RANK: is not set; allowed: the number that torchrun sets"),
        ({"LOCAL_WORLD_SIZE": None}, "LOCAL_WORLD_SIZE: is not set; allowed: the number that torchrun sets"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK: '-1' is not allowed; allowed: a whole number, the same on each machine"),
        ({"WORLD_SIZE": "many"}, "WORLD_SIZE: 'many' is not allowed; allowed: a whole number, the same on each"),
        ({"MASTER_ADDR": None}, "MASTER_ADDR: is not set; allowed: the address of rank 0's machine"),
        ({"MASTER_PORT": None}, "MASTER_PORT: None is not allowed; allowed: a port from 1 to 65534"),
        ({"MASTER_PORT": "65535"}, "MASTER_PORT: '65535' is not allowed; allowed: a port from 1 to 65534"),
        ({"RANK": "8"}, "RANK=8, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4: ranks are not in order"),
        ({"LOCAL_RANK": "2"}, "ranks are not in order; allowed: equally many on each machine, machine by machine"),
        ({"WORLD_SIZE": "7"}, "ranks are not in order; allowed: equally many on each machine, machine by machine"),
    ],
)
def test_wrong_variables_are_one_line(changes, line):
    environment = {name: text for name, text in {**TORCHRUN, **changes}.items() if text is not None}
    assert line in line_on(environment)


def line_on(environment):
    """Return the line on wrong variables, whether or not rank 0 can still be reached."""
    try:
        return read_world(environment).fault
    except WorldError as error:
        return str(error)


def test_variables_that_no_launcher_set_are_named_at_once_by_every_rank():
    with pytest.raises(WorldError, match=r"^WORLD_SIZE=2 is set, .* unset its variables, such as RANK") as caught:
        read_world({"RANK": "1", "WORLD_SIZE": "2"})
    assert caught.value.is_reported


@pytest.mark.parametrize(
    ("changes", "is_reported"),
    [
        ({"RANK": "0", "MASTER_PORT": None}, True),
        ({"RANK": "5", "MASTER_PORT": None}, False),
        ({"RANK": "5", "MASTER_ADDR": None}, False),
        ({"RANK": None, "LOCAL_RANK": "0"}, True),
        ({"RANK": None, "LOCAL_RANK": "1"}, False),
        ({"RANK": "x", "LOCAL_RANK": None}, True),
    ],
)
def test_a_fault_that_hides_rank_0_is_reported_by_rank_0_or_once_on_a_machine(changes, is_reported):
    environment = {name: text for name, text in {**TORCHRUN, **changes}.items() if text is not None}
    with pytest.raises(WorldError) as caught:
        read_world(environment)
    assert caught.value.is_reported is is_reported


def test_with_another_fault_rank_0_can_be_reached():
    world = read_world({**TORCHRUN, "LOCAL_RANK": "2"})
    assert (world.rank, world.size, world.address, world.port) == (5, 8, "10.0.0.1", 29501)
    assert "ranks are not in order" in world.fault
    assert read_world(TORCHRUN).fault is None


def test_unlike_machines_of_srun_are_refused():
    world = read_world({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2,1"})
    assert world.fault.startswith("SLURM_STEP_TASKS_PER_NODE: '2,1' is not allowed")


def machine(gpus=0):
    accelerators = tuple(Accelerator(device=f"cuda:{i}", name="a GPU", memory_bytes=1) for i in range(gpus))
    facts = {"python": "3.11.7", "torch": "2.13.0", "cpu_model": "a CPU", "cores": 4, "memory_bytes": 1}
    return MachineInfo(**facts, accelerators=accelerators, backends=("gloo", "nccl"))


WORLD = World(0, 4, 0, 2, "10.0.0.1", 29501)


def planned(gpus=0, **options):
    return plan_world(from_options({"variants": "single,tuned,ddp", **options}), machine(gpus), WORLD)


def test_ranks_are_on_all_machines_and_the_other_variants_on_machine_0():
    assert [case.id for case in planned().cases] == [
        "single|mlp/small|b64|cpu|train|float32|random|t4|s0",
        "tuned|mlp/small|b64|cpu*2|train|float32|random|t4|s0",
        "ddp|mlp/small|b64|cpu*4|train|float32|random|t4|s0|m2",
    ]


def test_devices_of_two_machines_have_equal_names_and_are_not_shared():
    cases = {case.variant: case for case in planned(gpus=8).cases if case.batch == 64}
    assert cases["ddp"].devices == ("cuda:0", "cuda:1") * 2
    assert cases["ddp"].lanes_of_a_machine == cases["tuned"].devices == ("cuda:0", "cuda:1")
    assert planned(gpus=8).skipped == ()
    # The limit of each is the share of one lane: 64 / 4 items, and 64 / 2.
    assert sorted(case.batch for case in planned(gpus=8).cases if case.variant == "single") == [16, 32, 64]


@pytest.mark.parametrize(
    ("gpus", "options", "line"),
    [
        (0, {"devices": "cpu*2"}, "devices: 'cpu*2' is not one lane for each rank; allowed: 'cpu*4', or no devices"),
        (0, {"devices": "cpu*4,cpu*8"}, "devices: 'cpu*8' is not one lane for each rank"),
        (1, {}, "LOCAL_WORLD_SIZE: 2 is more than this machine's 1 devices; allowed: 1 to 1"),
    ],
)
def test_a_world_of_another_size_is_refused(gpus, options, line):
    with pytest.raises(WorldError) as caught:
        planned(gpus, **options)
    assert line in str(caught.value)
