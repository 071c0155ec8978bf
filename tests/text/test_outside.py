"""No text from outside commands a terminal. `hostile/option_rows.py` has the files that are not read."""

from dpbench.text.outside import one_line, printable

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b5m\r\n\udcff\u202etab\tend"


def test_no_text_commands_a_terminal():
    assert all(c == "\n" or c.isprintable() for c in printable(HOSTILE))
    assert one_line(HOSTILE) == "[31mred ]0;title 5m tab end"
    assert printable("a\n  b") == "a\n  b"
