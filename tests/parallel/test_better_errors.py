"""B8: the first error is raised, the others are its notes, and the next forward works."""

import contextlib

import pytest
import torch

from tests.parallel.three_lanes import wrapped


def failing_on(chunks):
    def forward(self, x):
        if int(x[0]) in chunks:
            raise KeyError(f"chunk {int(x[0])}")
        return x

    return forward


def test_b8_the_first_error_is_raised_with_the_others_as_notes(dispatch):
    wrapper = wrapped(failing_on({1, 2}), dispatch)
    with pytest.raises(KeyError) as caught:
        wrapper(torch.arange(3.0))
    assert "Caught KeyError in replica 1 on device cpu.\nOriginal Traceback" in str(caught.value.args[0])
    assert "chunk 1" in str(caught.value.args[0])
    (note,) = caught.value.__notes__
    assert note.startswith("Also caught KeyError in replica 2 on device cpu")
    assert "chunk 2" in note


def test_b8_a_failed_forward_does_not_break_the_next(dispatch):
    wrapper = wrapped(failing_on({1}), dispatch)
    for _ in range(3):
        with pytest.raises(KeyError):
            wrapper(torch.arange(3.0))
        torch.testing.assert_close(wrapper(torch.zeros(3)), torch.zeros(3))


def test_b8_a_failed_forwards_attributes_do_not_stay(dispatch):
    seen = []

    def forward(self, x):
        seen.append(hasattr(self, "mark"))
        self.mark = True
        if int(x[0]) == 1:
            raise KeyError
        return x

    wrapper = wrapped(forward, dispatch)
    for x in (torch.arange(3.0), torch.zeros(3)):
        with contextlib.suppress(KeyError):
            wrapper(x)
    assert seen == [False] * 6


def test_b8_an_interrupt_goes_through(dispatch):
    def forward(self, x):
        if int(x[0]) == 1:
            raise KeyboardInterrupt
        return x

    wrapper = wrapped(forward, dispatch)
    with pytest.raises(KeyboardInterrupt):
        wrapper(torch.arange(3.0))
    torch.testing.assert_close(wrapper(torch.zeros(3)), torch.zeros(3))
