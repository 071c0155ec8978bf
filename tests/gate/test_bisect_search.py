"""The search for the first bad commit, over answers made by hand."""

import pytest

from dpbench.gate.bisect.search import CommitAnswer, find_first_bad


def searched(row):
    """Search a row such as ``..?xx``: good, skipped, bad. Return the suspects and the asked positions."""
    answers = {".": CommitAnswer.GOOD, "?": CommitAnswer.SKIPPED, "x": CommitAnswer.BAD}
    asked = []

    def ask(index):
        asked.append(index)
        return answers[row[index]]

    found = find_first_bad(len(row), ask)
    return found.last_good, found.first_known_bad, asked


@pytest.mark.parametrize("first_bad", range(20))
def test_the_first_bad_of_a_row_is_found_in_few_steps(first_bad):
    last_good, bad, asked = searched("." * first_bad + "x" * (20 - first_bad))
    assert (last_good, bad) == (first_bad - 1, first_bad)
    assert len(asked) <= 5
    assert 19 not in asked


@pytest.mark.parametrize(
    ("row", "last_good", "bad"),
    [
        ("x", -1, 0),
        ("?x", -1, 1),
        (".?x", 0, 2),
        ("..?.xx", 3, 4),
        (".?.?x?x", 2, 4),
        ("??x??", -1, 2),
        ("????", -1, 3),
        (".x?x", 0, 1),
    ],
)
def test_skipped_commits_are_suspects_only_between_a_good_and_a_bad_one(row, last_good, bad):
    row = row[:-1] + "x"
    found = searched(row)
    assert found[:2] == (last_good, bad)
    assert len(set(found[2])) == len(found[2])


def test_every_row_of_six_leaves_the_true_commit_among_the_suspects():
    for mask in range(2**5):
        for first_bad in range(6):
            row = "".join("?" if mask >> i & 1 and i < 5 else "x" if i >= first_bad else "." for i in range(6))
            last_good, bad, asked = searched(row)
            assert last_good < first_bad <= bad, row
            assert all(row[each] == "?" for each in range(last_good + 1, bad)), row
            assert len(set(asked)) == len(asked)


def test_a_broad_region_of_skipped_commits_is_passed_over():
    _, bad, asked = searched("." * 10 + "?" * 70 + "." * 10 + "x" * 10)
    assert bad == 90
    assert len(asked) < 20
