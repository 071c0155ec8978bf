"""Which Python the shared environment is for, as asv asks it."""

import sys
from types import SimpleNamespace

import pytest
from asv import environment

from benchmarks.asv_environment import SharedEnvironment

CONFIG = SimpleNamespace(environment_type="dpbench-shared", exclude=[], include=[], env_dir=".asv/env", matrix={})


def test_a_version_is_its_own_to_make_or_to_refuse():
    """One that nobody takes asv offers to an environment without words."""
    assert environment.get_environment_class(CONFIG, f"3.{sys.version_info.minor}") is SharedEnvironment
    kind = environment.get_environment_class(CONFIG, "3.99")
    with pytest.raises(environment.EnvironmentUnavailable, match=r"Python 3\.99 is not the one that runs asv"):
        kind(CONFIG, "3.99", {}, {})


@pytest.mark.parametrize("python", ["same", sys.executable])
def test_a_python_by_name_is_asvs_to_use_as_it_is(python):
    assert environment.get_environment_class(CONFIG, python) is environment.ExistingEnvironment
