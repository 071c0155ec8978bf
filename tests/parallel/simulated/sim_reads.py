"""Every way to read a weight waits for its arrival; without the wait there is a race."""

import copy
from operator import attrgetter

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy
from dpbench.parallel.tables import Arrival
from dpbench.simulator import RaceError
from tests.parallel.models import Call

DEVICES = [f"sim:{i}" for i in range(4)]
SMALL = Policy(bucket_bytes=200, first_bucket_bytes=64, dispatch="sequence")


def compiled(layer):
    return torch.compile(lambda layer: layer.weight * 1, backend="eager")(layer)


READS = {
    "attribute": lambda layer: layer.weight,
    "parameters": lambda layer: next(layer.parameters()),
    "state_dict": lambda layer: layer.state_dict()["weight"],
    "former": lambda layer: layer._former_parameters["weight"],
    "item": lambda layer: layer._parameters["weight"],
    "get": lambda layer: layer._parameters.get("weight"),
    "pop": lambda layer: layer._parameters.pop("weight"),
    "popitem": lambda layer: [layer._parameters.popitem() for _ in ("bias", "weight")][-1][1],
    "setdefault": lambda layer: layer._parameters.setdefault("weight", None),
    "items": lambda layer: next(iter(layer._parameters.items()))[1],
    "values": lambda layer: next(iter(layer._parameters.values())),
    "copy": lambda layer: layer._parameters.copy()["weight"],
    "copy.copy": lambda layer: copy.copy(layer._parameters)["weight"],
    "deepcopy": lambda layer: copy.deepcopy(layer).weight,
    "dict": lambda layer: dict(layer._parameters)["weight"],
    "unpacked": lambda layer: {**layer._parameters}["weight"],
    "or": lambda layer: (layer._parameters | {})["weight"],
    "or, reflected": lambda layer: ({} | layer._parameters)["weight"],
    "compiled": compiled,
}


class Own(nn.Linear):
    """A custom module: the wrapper does not know in which attribute its replica keeps weights."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("scale", torch.ones(20))

    def _replicate_for_data_parallel(self):
        return super()._replicate_for_data_parallel()


def read_by(read, kind):
    base = Call(lambda self, x: x * read(self.layer).sum(), layer=kind(20, 20, bias=False)).to("sim:0")
    wrapper = DataParallel(base, DEVICES, policy=SMALL)
    with torch.no_grad():
        for _ in range(3):
            base.layer.weight.add_(1)
            wrapper(torch.ones(8, 1, device="sim:0"))


CASES = {
    **{name: (read, nn.Linear) for name, read in READS.items()},
    **{f"a custom module's {name}": (attrgetter(name), Own) for name in ("weight", "scale")},  # it waits for all first
}


@pytest.mark.parametrize(("read", "kind"), CASES.values(), ids=CASES)
def test_a_read_waits_and_without_the_wait_it_is_a_race(read, kind, monkeypatch):
    read_by(read, kind)
    monkeypatch.setattr(Arrival, "wait", lambda self: None)
    with pytest.raises(RaceError):
        read_by(read, kind)
