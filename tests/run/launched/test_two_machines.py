"""Two runs of benchmarks/sweep_soak.py: a rank of a sweep over two machines is killed at a random moment."""

import os

import pytest

from benchmarks.sweep_soak import soak_run
from benchmarks.two_machines import NoNamespacesError, two_machines
from tests.sampling import sampled

LATEST_S = 30.0


@pytest.fixture
def machines():
    try:
        with two_machines(f"dpt{os.getpid()}") as found:
            yield found
    except NoNamespacesError as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")


@pytest.mark.exhaustive
@pytest.mark.timeout(590)
@pytest.mark.parametrize("seed", sampled(range(20, 40), 1))
def test_no_record_is_lost_or_doubled_and_no_process_is_left(machines, tmp_path, seed):
    run = soak_run(seed, machines, tmp_path, LATEST_S)
    assert run.is_clean, f"{run}\n{(tmp_path / 'output.txt').read_text()[-3000:]}"
