import gc
import weakref

import pytest

from dpbench.results.garbage import no_garbage_collection


class Big:
    """An object that can be watched."""


def test_collection_is_off_inside_and_on_afterwards_also_after_an_error() -> None:
    with no_garbage_collection():
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), no_garbage_collection():
        raise KeyError
    assert gc.isenabled()


def test_a_decorated_functions_variables_are_freed_before_collection_is_on() -> None:
    was_enabled: list[bool] = []

    @no_garbage_collection()
    def use() -> int:
        big = Big()
        weakref.finalize(big, lambda: was_enabled.append(gc.isenabled()))
        return 3

    assert use() == 3
    assert was_enabled == [False]
