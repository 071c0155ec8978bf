"""asv suites as strangers write them: failures late, skips in the body, their own limits and variables, peak memory."""

import pytest

from dpbench.engine.messages import Listed, Listing
from dpbench.gate.benchmarks import choose
from dpbench.gate.count_sides import settled
from dpbench.gate.judgement import CounterChange
from dpbench.gate.settings import Selection
from dpbench.jobs.count import LIMIT_S
from dpbench.measure.borrowed.lent import PEAK_UNIT
from dpbench.records.record import Outcome
from tests.gate.foreign_suites import counted, listed, refused, write_suite

SUITE = """
import math
from asv_runner.benchmarks.mark import SkipNotImplemented, skip_for_params

def track_none(): return None
def track_nan(): return math.nan
def track_infinite(): return math.inf
def track_text(): return "fast"
def track_right(): return 3

class Closing:
    def time_teardown(self): pass
    def track_teardown(self): return 1
    def teardown(self): raise RuntimeError("left open")

class Body:
    params = ["can", "cannot"]
    def time_marked(self, kind):
        if kind == "cannot": raise SkipNotImplemented("no such backend")
    def time_plain(self, kind):
        if kind == "cannot": raise NotImplementedError
    def track_value(self, kind):
        if kind == "cannot": raise SkipNotImplemented
        return 1
    def peakmem_value(self, kind):
        if kind == "cannot": raise SkipNotImplemented("no memory")
"""
ALLOWED = "allowed: a finite number"
WHY = {
    "track_none": (f"its value is None; {ALLOWED}", False),
    "track_nan": (f"its value is nan; {ALLOWED}", False),
    "track_infinite": (f"its value is inf; {ALLOWED}", False),
    "track_text": (f"its value is 'fast'; {ALLOWED}", False),
    "track_right": (None, False),
    "time_teardown": ("RuntimeError: left open", False),
    "track_teardown": ("RuntimeError: left open", False),
    **{f"{name}('can')": (None, False) for name in ("time_marked", "time_plain", "track_value", "peakmem_value")},
    "time_marked('cannot')": ("its call skips it: no such backend", True),
    "time_plain('cannot')": ("its call skips it: NotImplementedError", True),
    "track_value('cannot')": ("its call skips it: SkipNotImplemented", True),
    "peakmem_value('cannot')": ("its call skips it: no memory", True),
}


def test_what_fails_and_what_is_skipped(tmp_path):
    assert refused(write_suite(tmp_path / "head", {"suite/b.py": SUITE}), "asv") == WHY


VARIABLES = """{"version": 1, "project": "toy", "repo": ".", "benchmark_dir": "suite", "matrix": {
    "req": {"numpy": ["1", "2"]},
    "env": {"BUILT": ["-O2", "-O3"]},
    "env_nobuild": {"ONE": ["fast"], "TWO": ["a", "b"], "TEXT": "plain", "NUMBER": [3],
        "UNSET": [null, "x"], "NONE": []}
}}"""
NAMES = ("BUILT", "ONE", "TWO", "TEXT", "NUMBER", "UNSET", "NONE", "ASV", "ASV_PROJECT")
READS = f"import os\nVALUES = [os.environ.get(name) for name in {NAMES}]\ndef time_one(): raise ValueError(VALUES)\n"


def test_variables_of_the_matrix_are_set_and_those_with_choices_are_noted(tmp_path):
    folder = write_suite(tmp_path / "head", {"asv.conf.json": VARIABLES, "suite/b.py": READS})
    suite = listed(folder, "asv")
    values = ["-O2", "fast", "a", "plain", "3", None, None, "true", "toy"]
    assert suite.meant[0].refused == f"ValueError: {values}"
    assert suite.notes == (
        "asv.conf.json: matrix: env: BUILT: measured with '-O2' alone, of ['-O2', '-O3']",
        "asv.conf.json: matrix: env_nobuild: TWO: measured with 'a' alone, of ['a', 'b']",
        "asv.conf.json: matrix: env_nobuild: UNSET: measured with None alone, of [None, 'x']",
    )
    listing = Listing(meant=(Listed(name="b"),), notes=suite.notes)
    assert choose(Selection(asv=".", pattern=True), Listing(), listing).notes[:3] == suite.notes


LIMITS = """
import time

class Own:
    timeout = 2.5
    def time_hangs(self): time.sleep(60)
    def time_short(self): time.sleep(0.1)

class Cached:
    timeout = 0.5
    def setup_cache(self):
        time.sleep(1.5)
        return 7
    setup_cache.timeout = 30
    def time_cached(self, cache): assert cache == 7

def time_default(): time.sleep(3)
"""


def test_the_suites_own_limits_count_and_are_named(tmp_path):
    conf = '{"repo": ".", "benchmark_dir": "suite", "default_benchmark_timeout": 4}'
    folder = write_suite(tmp_path / "head", {"asv.conf.json": conf, "suite/b.py": LIMITS})
    by_name = {entry.name.rpartition(".")[2]: entry for entry in listed(folder, "asv", timeout_s=1.0).meant}
    assert by_name["time_hangs"].refused == "no answer in 5 s (its `timeout` and that of its `setup_cache`)"
    assert [by_name[f"time_{name}"].refused for name in ("short", "cached", "default")] == [None] * 3
    assert by_name["time_cached"].timeouts_s == (0.5, 30)
    assert by_name["time_default"].timeouts_s == (4, 4)


@pytest.mark.parametrize(("timeouts_s", "limit_s"), [((), LIMIT_S), ((5, 9), LIMIT_S), ((600, 60), 1200)])
def test_a_suite_that_allows_more_time_gets_more_for_counts_and_rounds(timeouts_s, limit_s):
    listing = Listing(meant=(Listed(name="one", timeouts_s=timeouts_s),))
    (one,) = choose(Selection(asv="."), listing, listing).both
    assert one.limit_s == limit_s


ONE, FAILS = Listed(name="one"), Listed(name="one", refused="ValueError")
SKIPPED = Listed(name="one", refused="skips it", is_skipped=True)


@pytest.mark.parametrize(
    ("base", "head", "lost", "left_out"),
    [
        ([ONE], [ONE], [], []),
        ([], [ONE], [], []),
        ([ONE], [SKIPPED], ["one"], []),
        ([SKIPPED], [SKIPPED], [], ["one"]),
        ([FAILS], [FAILS], [], ["one"]),
        ([FAILS], [SKIPPED], [], ["one"]),
        ([SKIPPED], [FAILS], [], ["one"]),
        ([FAILS], [ONE], [], ["one"]),
        ([SKIPPED], [ONE], [], ["one"]),
        ([], [SKIPPED], [], ["one"]),
        ([ONE, Listed(name="old")], [ONE], ["old"], []),
        ([ONE, Listed(name="old", refused="ValueError")], [ONE], [], ["old"]),
    ],
)
def test_what_is_lost_and_what_is_left_out(base, head, lost, left_out):
    chosen = choose(Selection(asv=".", pattern=True), Listing(meant=base), Listing(meant=head))
    assert (list(chosen.lost), list(chosen.left_out)) == (lost, left_out)
    assert all(any(name in note for note in chosen.notes) for name in (*lost, *left_out))


def test_files_that_do_not_import_are_left_out_too():
    old, new = Listing(meant=(ONE,), problems=("KeyError: 1",)), Listing(meant=(ONE,), problems=("SyntaxError: x",))
    chosen = choose(Selection(asv=".", pattern=True), old, new)
    assert chosen.left_out == ("SyntaxError: x",)
    assert chosen.notes == ("base: not read: KeyError: 1", "head: not read: SyntaxError: x")


PEAKS = """
def peakmem_small(): return [0] * 1000
def peakmem_large(): return bytearray({size} << 20)
def peakmem_freed(): bytearray(40 << 20)
def track_own():
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""


def test_peak_memory_is_that_above_the_process_start_in_any_order(tmp_path):
    for name, size in (("base", 30), ("head", 50)):
        write_suite(tmp_path / name, {"suite/b.py": PEAKS.format(size=size)})
    small, base, freed, head, base_again = (
        counted(tmp_path / side, f"asv b.peakmem_{name}")[0].counts.by_name()[f"value ({PEAK_UNIT})"] / (1 << 20)
        for side, name in (
            ("base", "small"),
            ("base", "large"),
            ("base", "freed"),
            ("head", "large"),
            ("base", "large"),
        )
    )
    assert 0 <= small < 8
    assert 30 <= base < 38
    assert 40 <= freed < 48
    assert 19 < head - base < 21
    assert abs(base - base_again) < 1


def peak(base_mib, head_mib, unit=PEAK_UNIT):
    base, head = base_mib * 2**20, head_mib * 2**20
    return CounterChange(benchmark="counts b", counter=f"value ({unit})", base=base, head=head, is_worse=head > base)


@pytest.mark.parametrize(
    ("first", "second", "kept", "gaps"),
    [
        (peak(5, 25), peak(5, 25), True, 0),
        (peak(5, 5.9), peak(5, 5.9), False, 0),
        (peak(5, 5.9, "bytes"), peak(5, 5.9, "bytes"), True, 0),
        (peak(100, 104), peak(102, 98), False, 0),
        (peak(100, 104), peak(102, 106), True, 0),
        (peak(5, 8), peak(7, 10), False, 1),
    ],
)
def test_a_change_must_have_one_direction_in_both_orders(first, second, kept, gaps):
    changes, _, unclear = settled([first], [second], {"counts b": 0.02})
    assert (changes == [first], len(unclear)) == (kept, gaps)


def test_a_count_that_fails_later_is_skipped_with_its_reason(tmp_path):
    text = "calls = []\ndef track_late():\n    calls.append(1)\n    return 1 if len(calls) < 2 else None\n"
    (record,) = counted(write_suite(tmp_path / "head", {"suite/b.py": text}), "asv b.track_late")
    assert record.outcome is Outcome.SKIPPED
    assert record.reason == f"its value is None; {ALLOWED}"
