"""The attack as a table, and the invariant of all commands, tested on itself."""

import pytest

from tests.hostile.attack import Answer, assert_unharmed, attack, matches
from tests.hostile.file_rows import files
from tests.hostile.files import counts_file
from tests.hostile.option_rows import options

ROWS = [*options(), *files()]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row(row):
    answer = attack(row.words, row.files)
    assert_unharmed(answer)
    assert answer.code == row.code, answer
    assert matches(row.pattern, answer), answer


def test_rows_have_names_of_their_own():
    names = list(map(str, ROWS))
    assert len(set(names)) == len(names)


def test_names_in_expected_counts_command_no_terminal():
    content = counts_file(cases={"\x1b[31mcase": {"\x1b[31mcounter": 1}})
    answer = attack(("counts", "--check", "--expected=e"), {"e/torch-2.13.0-py3.11.json": content})
    assert_unharmed(answer)
    assert (answer.code, "expected, not counted" in answer.out) == (1, True), answer


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
