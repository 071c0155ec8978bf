"""Which code made a counter worse, with details made by hand."""

from pathlib import Path

import pytest

from dpbench.cases.case import Case
from dpbench.engine.messages import CountJob, CountJobs, CountRecords
from dpbench.gate.causes import MOST_CAUSES, blames_of, causes, find_blames
from dpbench.gate.changed_code import ChangedCode, changed_code
from dpbench.gate.judgement import Cause, CounterChange
from dpbench.gate.sides import Sides
from dpbench.records.count_record import CountRecord, Counts, Detail, Phase, PhaseCounts, Place
from dpbench.records.record import Outcome
from tests.fakes import ended
from tests.records.making import ENVIRONMENT

ON_CPU = Case(variant="tuned", workload="mlp/tiny", batch=8, devices=("cpu", "cpu"), threads=1)
CALLS = "forward.python_calls"


def called(what, line, value=1, *, text="", function="forward", at=7, counter=CALLS, file="m.py", is_changed=False):
    """A detail: `what`, defined in line `at` of d.py, was called in `line`."""
    defined = Place(file="d.py", line=at, function=what)
    place = Place(file=file, line=line, function=function, text=text or f"{what}()")
    return Detail(counter=counter, what=what, place=place, value=value, defined=defined, is_changed=is_changed)


def named(olds, news):
    return [(cause.what, cause.lines, cause.base, cause.head) for cause in causes(CALLS, olds, news)]


DIFFERENCES = {
    "nothing": ([called("f", 1)], [called("f", 1)], []),
    "moved lines": ([called("f", 1), called("g", 2, at=9)], [called("f", 5), called("g", 6, at=19)], []),
    "a call more": ([called("f", 1)], [called("f", 1), called("g", 2)], [("g (d.py:7)", (2,), 0, 1)]),
    "a call less": ([called("f", 1), called("g", 2)], [called("f", 1)], [("g (d.py:7)", (2,), 1, 0)]),
    "the same line more often": ([called("f", 1)], [called("f", 1, 3)], [("f (d.py:7)", (1,), 1, 3)]),
    "a new line alone is shown": (
        [called("f", 1, text="old()")],
        [called("f", 2, text="old()"), called("f", 3, text="new()")],
        [("f (d.py:7)", (3,), 1, 2)],
    ),
    "another function": ([called("f", 1)], [called("f", 1, function="h")], [("f (d.py:7)", (1,), 0, 1)] * 1),
    "the most first, what shrank last": (
        [called("a", 1, 9), called("b", 2, 1), called("c", 3, 1)],
        [called("a", 1, 2), called("b", 2, 2), called("c", 3, 5)],
        [("c (d.py:7)", (3,), 1, 5), ("b (d.py:7)", (2,), 1, 2), ("a (d.py:7)", (1,), 9, 2)],
    ),
    "other counters": ([], [called("f", 1, counter="backward.python_calls")], []),
}
DIFFERENCES["another function"][2].append(("f (d.py:7)", (1,), 1, 0))


@pytest.mark.parametrize(("olds", "news", "expected"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_the_code_whose_part_differs_is_named(olds, news, expected):
    assert named(olds, news) == expected


def detailed(*details):
    counts = Counts(phases={Phase.FORWARD: PhaseCounts(python_calls=sum(detail.value for detail in details))})
    return CountRecord(case=ON_CPU, outcome=Outcome.OK, counts=counts, environment=ENVIRONMENT, details=details)


def change(counter=CALLS, is_worse=True):
    return CounterChange(benchmark="b", counter=counter, base=1, head=2, is_worse=is_worse)


def test_the_largest_causes_are_named_and_the_others_counted():
    news = [called(f"f{i}", i, value=20 - i) for i in range(MOST_CAUSES + 3)]
    (blame,) = blames_of([change()], {"b": ([], news)})
    assert [cause.head for cause in blame.causes] == [20, 19, 18]
    assert blame.more == 3


def test_a_growth_is_explained_by_the_counter_that_grows():
    (blame,) = blames_of([change(f"{CALLS}.growth")], {"b": ([], [called("f", 1)])})
    (cause,) = blame.causes
    assert cause.what == "f (d.py:7)"


def asking(*records):
    asked, answers = [], list(records)

    def launch(command, stdin_text, timeout_s):
        jobs = CountJobs.model_validate_json(stdin_text).jobs
        asked.extend(jobs)
        return ended(0, CountRecords(records=tuple(answers.pop(0) for _ in jobs)).model_dump_json().encode())

    return launch, asked


@pytest.mark.parametrize("changes", [[], [change(is_worse=False)]])
def test_without_a_worse_counter_nothing_is_counted_again(changes):
    launch, asked = asking()
    assert find_blames(changes, {"b": CountJob(case=ON_CPU)}, Sides(Path("/b"), Path("/h"), launch)) == ()
    assert asked == []


def write(folder, text):
    folder.mkdir(parents=True)
    (folder / "m.py").write_text(text)
    return folder


OLD = "class A:\n    def f(self):\n        self\n        return 1\n\n    def g(self):\n        return 2\n\n\nSIZE = 4\n"
EDITS = {
    "a line more": ("return 1", "x = 1\n        return x", [("A.f", 4)], (4, 5), (4,)),
    "a line less": ("        self\n", "", [("A.f", 2)], (2, 3), (3,)),
    "a constant": ("SIZE = 4", "SIZE = 8", [("<module>", 10)], (10,), (10,)),
    "a name": ("def g", "def h", [("A.h", 6)], (6,), (6,)),
    "a docstring alone": ("class A:\n", 'class A:\n    """What."""\n', [], (2,), (1, 2)),
    "a comment alone": ("return 2\n", "return 2\n        # two\n", [], (8,), (7, 8)),
}


@pytest.mark.parametrize("name", EDITS)
def test_changed_lines_are_known_on_both_sides_with_the_function(tmp_path, name):
    old, new, places, head, base = EDITS[name]
    code = changed_code(write(tmp_path / "base", OLD), write(tmp_path / "head", OLD.replace(old, new)))
    assert [(place.function, *place.lines) for place in code.places] == places
    assert (code.head["m.py"], code.base["m.py"]) == (head, base)


def test_no_link_of_a_commit_is_read(tmp_path):
    base, head = write(tmp_path / "base", OLD), write(tmp_path / "head", OLD)
    (head / "link.py").symlink_to("m.py")
    assert changed_code(base, head).places == ()


CHANGED = Cause(what="changed", function="f", file="m.py", lines=(3,), text="x", is_changed=True)
CODE = ChangedCode(head={"m.py": (3,)}, places=(CHANGED,))
TORCH = called("c", 8, 9, file="torch/nn.py")


def lines_of(worse, news, code=CODE):
    details = {"b": ([], news)}
    return [[c.lines[0] for c in blame.causes] for blame in blames_of(worse, details, code, lambda f: "torch" in f)]


def test_a_changed_line_that_the_events_pass_through_comes_first():
    passed = [called("a", 2, 5, is_changed=True), called("b", 3, 9, text="new()", is_changed=True)]
    assert lines_of([change()], [*passed, TORCH]) == [[3, 2]]


def test_other_counters_and_then_the_commit_name_the_line_that_the_events_do_not_show():
    shown = called("b", 3, text="new()", counter="forward.kernels", is_changed=True)
    other = CHANGED.model_copy(update={"lines": (30,)})
    code = ChangedCode(head={"m.py": (3, 30)}, places=(other,))
    assert lines_of([change(), change("forward.kernels")], [TORCH, shown], code) == [[3], [3]]
    assert lines_of([change(), change("forward.kernels")], [TORCH], code) == [[30], [30]]


def test_a_line_of_a_library_is_last_and_only_without_changed_code():
    assert lines_of([change()], [TORCH, called("d", 5)], ChangedCode()) == [[5, 8]]
    assert lines_of([change()], [TORCH, called("d", 5)]) == [[3]]


def test_the_case_of_a_worse_counter_is_counted_again_with_details():
    launch, asked = asking(detailed(called("f", 1)), detailed(called("f", 1, 2)))
    job = CountJob(case=ON_CPU, more_steps=9)
    (blame,) = find_blames([change(), change("x.allocations")], {"b": job}, Sides(Path("/b"), Path("/h"), launch))
    assert [(cause.base, cause.head) for cause in blame.causes] == [(1, 2)]
    assert [(job.folder, job.details, job.more_steps) for job in asked] == [
        ("/b", True, 0),
        ("/h", True, 0),
    ]


def test_what_the_commit_changed_is_blamed_if_a_side_cannot_be_counted_again(tmp_path):
    changes, jobs = [change()], {"b": CountJob(case=ON_CPU)}
    base, head = write(tmp_path / "base", OLD), write(tmp_path / "head", OLD.replace("return 2", "return 3"))
    (blame,) = find_blames(changes, jobs, Sides(base, head, lambda *_: ended(1)))
    assert [(cause.function, cause.lines) for cause in blame.causes] == [("A.g", (7,))]
