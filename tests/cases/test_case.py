"""A case, its id, and the case that it is held against."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.cases.case import Case, on_one_device, single_device_baseline
from dpbench.cases.names import Data, Dtype, Mode, parse_devices
from dpbench.cases.variants import VariantName

cases = st.builds(
    Case,
    variant=st.sampled_from(VariantName),
    workload=st.sampled_from(["mlp/tiny", "mlp/small", "a.b:c"]),
    batch=st.integers(1, 12),
    devices=st.sampled_from([("cpu",), ("cpu", "cpu"), ("cuda:0", "cuda:1"), ("cuda:0", "cuda:0")]),
    mode=st.sampled_from(Mode),
    dtype=st.sampled_from(Dtype),
    data=st.sampled_from(Data),
    threads=st.integers(1, 3),
    seed=st.integers(0, 3),
    steps_per_sample=st.integers(1, 3),
)


@given(cases, cases)
def test_ids_are_equal_exactly_where_cases_are(a: Case, b: Case) -> None:
    assert (a.id == b.id) == (a == b)


@given(cases, st.sampled_from(VariantName))
def test_the_setting_leaves_out_the_variant_alone(case: Case, variant: VariantName) -> None:
    other = case.model_copy(update={"variant": variant})
    assert other.setting == case.setting
    assert other.id == f"{variant}|{case.setting}"


def test_an_id_is_the_same_text_for_ever() -> None:
    case = Case(variant=VariantName.TUNED, workload="mlp/small", batch=64, devices=("cpu", "cpu"), threads=2)
    assert case.id == "tuned|mlp/small|b64|cpu*2|train|float32|random|t2|s0"


def test_only_several_steps_per_sample_are_in_the_id() -> None:
    case = Case(variant=VariantName.TUNED, workload="mlp/small", batch=64, devices=("cpu",), threads=2)
    several = case.model_copy(update={"steps_per_sample": 20})
    assert several.id == f"{case.id}|k20"
    assert several.setting == f"{case.setting}|k20"


@given(cases)
def test_a_case_survives_json(case: Case) -> None:
    assert Case.model_validate_json(case.model_dump_json()) == case


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
