"""Children of a zygote, which spare the import of torch."""

from tests.zygote import children_of_a_zygote  # noqa: F401  # a fixture
