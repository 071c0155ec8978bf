from hypothesis import given
from hypothesis import strategies as st

from dpbench.cases.names import Family, Size, is_factory, parse_workload


@given(st.sampled_from(Family), st.sampled_from(Size))
def test_every_family_has_every_size(family: Family, size: Size) -> None:
    assert parse_workload(f"{family}/{size}") == f"{family}/{size}"
    assert not is_factory(f"{family}/{size}")


def test_a_factory_is_a_module_and_a_name_in_it() -> None:
    assert parse_workload("my.pkg:make") == "my.pkg:make"
    assert is_factory("my.pkg:make")
