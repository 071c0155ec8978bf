"""Each wait of route "host" is needed: without it the simulator finds a race."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.parallel import DataParallel, broadcast
from dpbench.parallel.routes import host as host_route
from dpbench.parallel.routes import plan as routes
from dpbench.simulator import RaceError
from tests.parallel.simulated.racing import DEVICES, POLICIES


@pytest.fixture(params=["whole buckets", "pieces"], autouse=True)
def _pieces(request, monkeypatch):
    if request.param == "pieces":
        monkeypatch.setattr(routes, "PIECE_BYTES", 24)


def wrapped():
    torch.manual_seed(0)
    base = nn.Sequential(*[nn.Linear(5, 5) for _ in range(8)]).to("sim:0")
    return DataParallel(base, DEVICES, policy=replace(POLICIES["small buckets"], route="host"))


def forward():
    wrapper = wrapped()
    with torch.no_grad():
        for _ in range(2):
            wrapper(torch.randn(24, 5))


def train():
    wrapper = wrapped()
    for _ in range(2):
        wrapper(torch.randn(24, 5)).sum().backward()


def of_what_is_held(**fields):
    """Forget an event of each held piece, or that its readers note theirs."""

    def forget(patch):
        real = host_route.HeldPiece
        patch.setattr(host_route, "HeldPiece", lambda *held: replace(real(*held), **fields))

    return forget


def only_back(forget):
    """Forget it in backward only."""

    def patched(patch):
        real = host_route.HostRoute.send_back

        def send_back(*args):
            with pytest.MonkeyPatch.context() as here:
                forget(here)
                return real(*args)

        patch.setattr(host_route.HostRoute, "send_back", send_back)

    return patched


def forget_that_the_bucket_has_left(patch):
    real = broadcast.Bucket._send_together
    patch.setattr(broadcast.Bucket, "_send_together", lambda *args: real(*args) and None)


FORGOTTEN = {
    "a bucket is packed": (forward, lambda patch: patch.setattr(broadcast, "wait_event", lambda *_: None)),
    "a bucket has left the base": (forward, forget_that_the_bucket_has_left),
    "a piece is on the host": (forward, of_what_is_held(written=None)),
    "a slot was read": (forward, of_what_is_held(leaving=[])),
    "a piece of gradients is on the host": (train, only_back(of_what_is_held(written=None))),
    "a slot of a hop was read": (train, only_back(of_what_is_held(leaving=[]))),
}


@pytest.mark.parametrize("name", FORGOTTEN)
def test_each_wait_of_the_route_is_needed(name, monkeypatch):
    run, forget = FORGOTTEN[name]
    run()
    forget(monkeypatch)
    with pytest.raises(RaceError):
        run()
