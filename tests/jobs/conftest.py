"""Each test of this folder fails, too, if it leaves a process behind."""

from tests.engine.conftest import mark  # noqa: F401  # a fixture
from tests.zygote import children_of_a_zygote  # noqa: F401  # a fixture
