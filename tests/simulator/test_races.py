"""The shadow memory of a segment finds the same races as a list of all accesses."""

import random

import pytest

from dpbench.simulator.memory.races import Launch, RaceError, ShadowMemory
from dpbench.simulator.memory.regions import Region, region
from dpbench.simulator.streams import StreamOrder


class Segment:
    """A memory segment, with streams that access it."""

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
def test_a_race_names_both_operations_and_a_wait_prevents_it(first, second, kind, one, other):
    segment = Segment()
    getattr(segment, first)(1, one, "earlier")
    with pytest.raises(RaceError, match=rf"^{kind} race: later on stream 2 .* earlier on stream 1"):
        getattr(segment, second)(2, other, "later")

    segment = Segment()
    getattr(segment, first)(1, one)
    segment.wait(2, 1)
    getattr(segment, second)(2, other)


def test_reads_do_not_race_and_neither_do_separate_bytes():
    segment = Segment()
    segment.write(1, LEFT)
    segment.write(2, RIGHT)
    segment = Segment()
    segment.read(1, ALL)
    segment.read(2, ALL)
    segment = Segment()
    segment.write(1, EVEN)
    segment.write(2, ODD)


def test_a_write_must_follow_every_read_not_only_the_last():
    segment = Segment()
    segment.read(1, ALL)
    segment.read(2, ALL)
    segment.wait(3, 2)
    with pytest.raises(RaceError, match="read-write"):
        segment.write(3, ALL)


def test_an_older_write_beside_a_newer_one_is_not_forgotten():
    segment = Segment()
    segment.write(1, ALL)
    segment.wait(2, 1)
    segment.write(2, LEFT)
    segment.wait(3, 1)
    segment.read(3, RIGHT)
    with pytest.raises(RaceError, match="write-read"):
        segment.read(3, ALL)


def test_a_read_returns_the_last_writers():
    segment = Segment()
    segment.write(1, LEFT)
    segment.write(1, RIGHT)
    segment.write(1, EVEN)
    assert segment.read(1, RIGHT) == {2, 3}
    assert segment.read(1, ODD) == {1, 2}
    assert segment.read(1, ALL) == {1, 2, 3}


def test_an_overwritten_strided_write_is_no_writer():
    segment = Segment()
    segment.write(1, EVEN)
    segment.write(1, Region(0, 40))
    assert segment.read(1, Region(0, 40)) == {2}
    assert segment.read(1, ALL) == {1, 2}, "behind byte 40 the first write is the last one"
    segment.write(1, ODD)
    assert segment.read(1, Region(0, 40)) == {2, 5}


def test_an_empty_region_touches_nothing():
    segment = Segment()
    segment.write(1, ALL)
    assert segment.read(2, Region(10, 10)) == set()
    segment.write(2, Region(10, 10))


class AllAccesses:
    """Every access to every byte since the start."""

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
    segment = Segment()
    all_accesses = AllAccesses(segment.order)
    for _ in range(60):
        stream = rng.randrange(3)
        if rng.random() < 0.4:
            segment.wait(stream, rng.randrange(3))
            continue
        start, size, stride = rng.randrange(16), rng.randrange(1, 5), rng.choice([1, 1, 2, 3])
        touched = {start + i * stride for i in range(size)}
        where = region(start, (size,), (stride,), 1)
        is_write = rng.random() < 0.4
        expected = all_accesses.races(stream, touched, is_write)
        try:
            segment.write(stream, where) if is_write else segment.read(stream, where)
            raced = False
        except RaceError:
            raced = True
        assert raced == expected
        if raced:
            return
        all_accesses.past.append((stream, segment.events, touched, is_write))


@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("where", [ALL, LEFT, region(0, (10,), (2,), 2)])
@pytest.mark.parametrize("elsewhere", [RIGHT, region(50, (10,), (2,), 2)])
def test_forgotten_accesses_no_longer_race_and_all_others_do(access, where, elsewhere):
    segment = Segment()
    getattr(segment, access)(1, where)
    getattr(segment, access)(1, elsewhere)
    segment.shadow.forget(LEFT, [segment.order.now(1)])
    segment.write(3, LEFT)
    with pytest.raises(RaceError):
        segment.write(3, RIGHT)

    segment = Segment()
    getattr(segment, access)(1, where)
    early = segment.order.now(1)
    getattr(segment, access)(1, where)
    segment.shadow.forget(LEFT, [early])
    with pytest.raises(RaceError):
        segment.write(3, LEFT)


def test_the_shadow_stays_small():
    """A loop over views of one buffer keeps one entry for each view."""
    segment = Segment()
    for step in range(50):
        segment.write(1, Region(0, 6400))
        for view in range(64):
            segment.read(1, Region(view * 100, view * 100 + 100))
            segment.read(1, region(view, (100,), (64,), 1))
        if step == 5:
            size = len(segment.shadow._cells), len(segment.shadow._strided)
    assert (len(segment.shadow._cells), len(segment.shadow._strided)) == size == (64, 64)
