"""The shadow of a memory segment against a memory that knows every byte."""

import random

import pytest

from dpbench.simulator.races import Launch, RaceError, ShadowMemory
from dpbench.simulator.regions import Region, region
from dpbench.simulator.streams import StreamOrder


class SimStorage:
    """A shadow with its streams."""

    def __init__(self):
        self.order = StreamOrder()
        self.shadow = ShadowMemory(self.order)
        self.events = 0

    def launch(self, stream, name="op"):
        self.events += 1
        self.order.launch(stream, self.events)
        return Launch(name, stream, f"stream {stream}", self.events, "file.py:1")

    def read(self, stream, where, name="op"):
        return self.shadow.read(where, self.launch(stream, name))

    def write(self, stream, where, name="op"):
        self.shadow.write(where, self.launch(stream, name))

    def wait(self, stream, other):
        self.order.wait(stream, self.order.now(other))


ALL, LEFT, RIGHT = Region(0, 100), Region(0, 50), Region(50, 100)
EVEN, ODD = region(0, (10,), (2,), 4), region(4, (10,), (2,), 4)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [("write", "read", "write-read"), ("read", "write", "read-write"), ("write", "write", "write-write")],
)
@pytest.mark.parametrize(
    ("one", "other"), [(ALL, ALL), (ALL, LEFT), (RIGHT, ALL), (EVEN, ALL), (ALL, ODD), (EVEN, EVEN)]
)
def test_the_three_races_name_both_places_and_a_wait_settles_them(first, second, kind, one, other):
    memory = SimStorage()
    getattr(memory, first)(1, one, "earlier")
    with pytest.raises(RaceError, match=rf"^{kind} race: later on stream 2 .* earlier on stream 1"):
        getattr(memory, second)(2, other, "later")

    memory = SimStorage()
    getattr(memory, first)(1, one)
    memory.wait(2, 1)
    getattr(memory, second)(2, other)


def test_reads_do_not_race_and_neither_do_separate_bytes():
    memory = SimStorage()
    memory.write(1, LEFT)
    memory.write(2, RIGHT)
    memory = SimStorage()
    memory.read(1, ALL)
    memory.read(2, ALL)
    memory = SimStorage()
    memory.write(1, EVEN)
    memory.write(2, ODD)


def test_a_write_must_follow_every_read_not_only_the_last():
    memory = SimStorage()
    memory.read(1, ALL)
    memory.read(2, ALL)
    memory.wait(3, 2)
    with pytest.raises(RaceError, match="read-write"):
        memory.write(3, ALL)


def test_an_older_write_beside_a_newer_one_is_not_forgotten():
    memory = SimStorage()
    memory.write(1, ALL)
    memory.wait(2, 1)
    memory.write(2, LEFT)
    memory.wait(3, 1)
    memory.read(3, RIGHT)
    with pytest.raises(RaceError, match="write-read"):
        memory.read(3, ALL)


def test_a_read_tells_who_wrote():
    memory = SimStorage()
    memory.write(1, LEFT)
    memory.write(1, RIGHT)
    memory.write(1, EVEN)
    assert memory.read(1, RIGHT) == {2, 3}
    assert memory.read(1, ODD) == {1, 2}
    assert memory.read(1, ALL) == {1, 2, 3}


def test_a_strided_write_that_was_overwritten_wrote_nothing():
    memory = SimStorage()
    memory.write(1, EVEN)
    memory.write(1, Region(0, 40))
    assert memory.read(1, Region(0, 40)) == {2}
    assert memory.read(1, ALL) == {1, 2}, "beyond byte 40 it was not"
    memory.write(1, ODD)
    assert memory.read(1, Region(0, 40)) == {2, 5}


def test_an_empty_region_touches_nothing():
    memory = SimStorage()
    memory.write(1, ALL)
    assert memory.read(2, Region(10, 10)) == set()
    memory.write(2, Region(10, 10))


class Truth:
    """Every access to every byte, kept for ever."""

    def __init__(self, order):
        self.order = order
        self.past = []

    def races(self, stream, touched, is_write):
        return any(
            (is_write or was_write) and touched & bytes_ and not self.order.precedes(by, tick, stream)
            for by, tick, bytes_, was_write in self.past
        )


@pytest.mark.parametrize("seed", range(150))
def test_random_histories_race_just_where_the_truth_says(seed):
    rng = random.Random(seed)
    memory = SimStorage()
    truth = Truth(memory.order)
    for _ in range(60):
        stream = rng.randrange(3)
        if rng.random() < 0.4:
            memory.wait(stream, rng.randrange(3))
            continue
        start, size, stride = rng.randrange(16), rng.randrange(1, 5), rng.choice([1, 1, 2, 3])
        touched = {start + i * stride for i in range(size)}
        where = region(start, (size,), (stride,), 1)
        is_write = rng.random() < 0.4
        expected = truth.races(stream, touched, is_write)
        try:
            memory.write(stream, where) if is_write else memory.read(stream, where)
            found = False
        except RaceError:
            found = True
        assert found == expected
        if found:
            return
        truth.past.append((stream, memory.events, touched, is_write))


def test_the_shadow_stays_small():
    """A loop over views of one buffer leaves no more than the views, however long it runs."""
    memory = SimStorage()
    for step in range(50):
        memory.write(1, Region(0, 6400))
        for view in range(64):
            memory.read(1, Region(view * 100, view * 100 + 100))
            memory.read(1, region(view, (100,), (64,), 1))
        if step == 5:
            size = len(memory.shadow._cells), len(memory.shadow._strided)
    assert (len(memory.shadow._cells), len(memory.shadow._strided)) == size == (64, 64)
