"""Each test of this folder fails, too, if it leaves a process behind."""

from tests.engine.conftest import mark  # noqa: F401  # a fixture
