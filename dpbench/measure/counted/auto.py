"""Whether the wrapper's default dispatch chooses the faster way to call its replicas.

Two models, whose lanes sleep, have one faster way each, whatever the machine does meanwhile:

    lanes that sleep            10 ms each, with or without others      at once they take a quarter of the time
    lanes that hinder others    1 ms alone, 15 ms beside another        one after the other they take a third

A third trial gets fixed times, in which lanes at once take 3 % less: the wrapper changes for a gain above 5 % only.
"""

import time
from threading import Lock

import torch
from torch import Tensor, nn

from dpbench.measure.pinned import autotuner
from dpbench.measure.sample import settle

_LANES = 4
_READ_FORWARDS = 3
_SLEEP_S = 0.010
_SMALL_GAIN = {"sequence": 1.0, "threads": 0.97}
_ALONE_S, _HINDERED_S = 0.001, 0.015


class _Lanes:
    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self.overlapped = False

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            self.overlapped |= self._inside > 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1

    @property
    def are_crowded(self) -> bool:
        return self._inside > 1


class _Sleeper(nn.Module):
    def __init__(self, *, is_hindered: bool) -> None:
        super().__init__()
        self.lanes, self.is_hindered = _Lanes(), is_hindered

    def forward(self, x: Tensor) -> Tensor:
        self.lanes.enter()
        time.sleep(_ALONE_S if self.is_hindered else _SLEEP_S)
        if self.is_hindered and self.lanes.are_crowded:
            time.sleep(_HINDERED_S)
        self.lanes.leave()
        return x


def slower_choices() -> int:
    wrong = sum(_runs_at_once(_Sleeper(is_hindered=is_hindered)) is is_hindered for is_hindered in (False, True))
    return wrong + _leaves_sequence_for_a_small_gain()


def _leaves_sequence_for_a_small_gain() -> bool:
    kind = autotuner()
    if kind is None:
        return False
    tuner = kind(list(_SMALL_GAIN))
    while tuner.chosen is None:
        choice = tuner.next_choice()
        tuner.add(choice, _SMALL_GAIN[choice])
    return bool(tuner.chosen != "sequence")


def _runs_at_once(model: _Sleeper) -> bool:
    from dpbench.parallel import DataParallel  # here, so that a wrapper that does not load fails in its own case

    wrapper, x = DataParallel(model, ["cpu"] * _LANES), torch.zeros(_LANES, 1)
    settle(lambda: wrapper(x), lambda: getattr(wrapper, "trials_left", None))
    model.lanes.overlapped = False
    for _ in range(_READ_FORWARDS):
        wrapper(x)
    return model.lanes.overlapped
