"""The attack as a table, and the invariant of all commands, tested on itself."""

import pytest

from tests.hostile.attack import Answer, assert_unharmed, attack, matches
from tests.hostile.rows import rows

ROWS = list(rows())


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row(row):
    answer = attack(row.words, row.files)
    assert_unharmed(answer)
    assert answer.code == row.code, answer
    assert matches(row.pattern, answer), answer


def test_rows_have_names_of_their_own():
    names = list(map(str, ROWS))
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(("list",), 7, "", "", ()),
        Answer(("list",), 1, "", "Traceback (most recent call last)\n", ()),
        Answer(("list",), 0, "\x1b[31m", "", ()),
        Answer(("list",), 0, "a\rb", "", ()),
        Answer(("list",), 2, "", "dpbench: one\ndpbench: two\n", ()),
        Answer(("list",), 2, "", "", ()),
        Answer(("list",), 2, "x", "dpbench: one\n", ()),
        Answer(("list",), 2, "", "dpbench: one\n", ("/x",)),
        Answer(("gate",), 3, "", "dpbench: one\n", ("/x",)),
    ],
)
def test_the_invariant_fails_for_harm(answer):
    with pytest.raises(AssertionError):
        assert_unharmed(answer)
