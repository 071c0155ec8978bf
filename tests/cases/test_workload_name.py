import pytest
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


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("mlpp/small", "'mlpp/small' is no workload, did you mean 'mlp'?; allowed: family/size"),
        ("mlp/smal", "'mlp/smal' has no known size, did you mean 'small'?; allowed: family/size"),
        ("mlp", "'mlp' has no known size; allowed: family/size"),
        ("", "'' is no workload; allowed: family/size"),
        ("a-b:c", "'a-b:c' is no workload; allowed: family/size"),
        ("a..b:c", "'a..b:c' is no workload"),
        (":c", "':c' is no workload"),
        ("a:", "'a:' is no workload"),
        ("a:b:c", "'a:b:c' is no workload"),
        ("a:b.c", "'a:b.c' is no workload"),
        ("a:f()", "'a:f()' is no workload"),
    ],
)
def test_other_shapes_are_refused(text: str, beginning: str) -> None:
    with pytest.raises(
        ValueError, match=r"allowed: family/size with a family of mlp, .* or package.module:factory"
    ) as caught:
        parse_workload(text)
    assert str(caught.value).startswith(beginning)
