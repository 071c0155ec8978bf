"""A conftest.py may have a fixture `benchmark` of its own."""

import pytest

from tests.gate.foreign_suites import refused, write_suite

OWN = "import pytest\n@pytest.fixture\ndef benchmark({argument}):\n    return {value}\n"
TEST = "def test_sum(benchmark):\n    assert benchmark(sum, [1, 2]) == 3\n"


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("", "lambda function, *args: function(*args)", "`benchmark` of conftest, which is not pytest-benchmark's"),
        ("benchmark", "benchmark", None),
    ],
)
def test_a_fixture_that_hides_that_of_pytest_benchmark_is_named(tmp_path, argument, value, reason):
    files = {"conftest.py": OWN.format(argument=argument, value=value), "test_a.py": TEST}
    why, is_skipped = refused(write_suite(tmp_path / "head", files), "pytest", "test_a.py")["test_sum"]
    assert reason in why if reason else why is None
    assert not is_skipped
