from hypothesis import given
from hypothesis import strategies as st

from dpbench.cases.case import Case
from dpbench.cases.names import Data, Dtype, Mode
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
