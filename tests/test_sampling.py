"""A sample depends on the seed alone."""

import subprocess
import sys

import pytest

from tests import sampling


@pytest.fixture
def seeded(monkeypatch):
    """Return a function that sets the seed of the next samples."""

    def set_seed(seed):
        monkeypatch.setenv(sampling.SEED, seed)
        sampling.seed.cache_clear()

    monkeypatch.delenv(sampling.ALL, raising=False)
    yield set_seed
    monkeypatch.undo()
    sampling.seed.cache_clear()


def test_a_sample_has_the_asked_size_and_keeps_the_order(seeded):
    seeded("1")
    drawn = sampling.sampled(range(100), 10)
    assert len(drawn) == len(set(drawn)) == 10
    assert drawn == sorted(drawn)


def test_the_seed_decides_the_sample(seeded):
    samples = []
    for seed in ("1", "1", "2"):
        seeded(seed)
        samples.append(sampling.sampled(range(100), 10))
    assert samples[0] == samples[1] != samples[2]


def test_every_process_draws_the_same_sample(seeded):
    seeded("1")
    code = "from tests.sampling import sampled; print(sampled(range(100), 10))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(sampling.sampled(range(100), 10))


def test_everything_runs_if_asked(seeded, monkeypatch):
    monkeypatch.setenv(sampling.ALL, "1")
    assert sampling.sampled(range(100), 10) == list(range(100))
    assert "every parameter" in sampling.header()


def test_a_short_list_is_kept_whole(seeded):
    assert sampling.sampled("abc", 5) == ["a", "b", "c"]


def test_the_header_names_the_seed(seeded):
    seeded("some commit")
    assert f"{sampling.SEED}=some commit" in sampling.header()
