"""A few kills of benchmarks/kill_storm.py."""

import pytest

from benchmarks.kill_storm import Storm
from tests.sampling import sampled


@pytest.mark.parametrize("seed", sampled(range(2, 10), 1))
@pytest.mark.exhaustive
def test_a_small_storm_loses_no_record_and_leaves_no_process(tmp_path, seed):
    report = Storm(tmp_path, seed).run(kills=8)
    assert report.parents_killed >= 1
    assert report.children_killed >= 1
    assert report.records >= 4
