import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.cases.names import Family, Size, are_shared, format_devices, is_factory, parse_devices, parse_workload


@given(st.sampled_from(Family), st.sampled_from(Size))
def test_every_family_has_every_size(family: Family, size: Size) -> None:
    assert parse_workload(f"{family}/{size}") == f"{family}/{size}"
    assert not is_factory(f"{family}/{size}")


def test_a_factory_is_a_module_and_a_name_in_it() -> None:
    assert parse_workload("my.pkg:make") == "my.pkg:make"
    assert is_factory("my.pkg:make")


device = st.one_of(
    st.just("cpu"), st.builds("{}:{}".format, st.sampled_from(["cuda", "sim", "xpu"]), st.integers(0, 99))
)
lanes = st.lists(device, min_size=1, max_size=40).map(tuple)


@given(lanes)
def test_the_text_of_lanes_reads_back_as_the_same_lanes(lanes: tuple[str, ...]) -> None:
    assert parse_devices(format_devices(lanes)) == lanes


@given(lanes, lanes)
def test_different_lanes_have_different_texts(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    assert (format_devices(a) == format_devices(b)) == (a == b)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu*2", ("cpu", "cpu")),
        ("cpu:0", ("cpu",)),
        ("cuda*2", ("cuda:0", "cuda:1")),
        ("cuda:1*2", ("cuda:1", "cuda:1")),
        ("cuda:0 + cuda:1", ("cuda:0", "cuda:1")),
        ("cuda", ("cuda:0",)),
    ],
)
def test_what_texts_mean(text: str, expected: tuple[str, ...]) -> None:
    assert parse_devices(text) == expected


def test_lanes_are_shared_when_a_device_repeats() -> None:
    assert are_shared(("cuda:0", "cuda:1", "cuda:0"))
    assert not are_shared(("cuda:0", "cuda:1"))
