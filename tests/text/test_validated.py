"""What is wrong with a value from outside, in one line."""

import pytest
from pydantic import ValidationError, model_validator

from dpbench.text.validated import Frozen, what_is_wrong


class Pair(Frozen):
    low: int
    high: int = 9

    @model_validator(mode="after")
    def _in_order(self):
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Holder(Frozen):
    pair: Pair


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        ({}, "pair.low: missing"),
        (
            {"low": "\x1b[31m"},
            r"pair.low: Input should be a valid integer, unable to parse string as an integer, not '\x1b[31m'",
        ),
        ({"low": 1, "mid": 2}, "pair.mid: Extra inputs are not permitted"),
        ({"low": 10}, "pair: low is above high"),  # the whole value would hide the sentence
    ],
)
def test_the_first_wrong_field_is_named_with_its_value(pair, line):
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"pair": pair})
    assert what_is_wrong(caught.value) == line
