import pytest

from dpbench.cases.case import Case, on_one_device, single_device_baseline
from dpbench.cases.devices import parse_devices
from dpbench.cases.names import Mode
from dpbench.cases.variants import VariantName


def case(devices: str, batch: int) -> Case:
    return Case(
        variant=VariantName.TUNED,
        workload="mlp/tiny",
        batch=batch,
        devices=parse_devices(devices),
        mode=Mode.INFER,
        threads=3,
        seed=4,
    )


@pytest.mark.parametrize(
    ("devices", "batch", "first", "expected"),
    [
        ("cpu*4", 64, "cpu", 64),
        ("cuda:1*2", 64, "cuda:1", 64),
        ("cuda:0+cuda:1", 64, "cuda:0", 32),
        ("cuda:2+cuda:0+cuda:1", 64, "cuda:2", 22),
        ("cuda:0", 64, "cuda:0", 64),
    ],
)
def test_shared_lanes_are_held_against_the_whole_batch_and_others_against_the_largest_chunk(
    devices: str, batch: int, first: str, expected: int
) -> None:
    assert single_device_baseline(case(devices, batch)) == case(first, expected).model_copy(
        update={"variant": VariantName.SINGLE}
    )


def test_on_one_device_keeps_the_batch() -> None:
    assert on_one_device(case("cuda:1+cuda:0", 64)) == case("cuda:1", 64).model_copy(
        update={"variant": VariantName.SINGLE}
    )
