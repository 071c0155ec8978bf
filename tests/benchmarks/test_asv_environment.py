"""Which Python versions the shared environment accepts from asv."""

import sys
from types import SimpleNamespace

import pytest
from asv import environment

from benchmarks.asv_environment import SharedEnvironment

CONFIG = SimpleNamespace(environment_type="dpbench-shared", exclude=[], include=[], env_dir=".asv/env", matrix={})


def test_a_version_other_than_asvs_own_is_refused_with_a_reason():
    """If no type of environment takes a version, asv itself gives no reason."""
    assert environment.get_environment_class(CONFIG, f"3.{sys.version_info.minor}") is SharedEnvironment
    kind = environment.get_environment_class(CONFIG, "3.99")
    with pytest.raises(environment.EnvironmentUnavailable, match=r"Python 3\.99 is not the one that runs asv"):
        kind(CONFIG, "3.99", {}, {})


@pytest.mark.parametrize("python", ["same", sys.executable])
def test_a_python_by_path_is_left_to_asvs_existing_environment(python):
    assert environment.get_environment_class(CONFIG, python) is environment.ExistingEnvironment
