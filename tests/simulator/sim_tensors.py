"""Modules, optimisers, files and copies treat simulated tensors as an accelerator's."""

import copy
import io

import pytest
import torch
from torch import nn

from dpbench.simulator import simulate

sim = torch.get_device_module("sim")


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 2))


def train(net, make, device):
    optimizer = make(net.parameters())
    torch.manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(5, 3, 6, 6).to(device)).pow(2).mean().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False),
    ],
)
def test_training_gives_the_numbers_of_the_cpu(make):
    reference, simulated = model(), model().to("sim:1")
    train(reference, make, "cpu")
    train(simulated, make, "sim:1")
    assert all(value.device == torch.device("sim:1") for value in simulated.state_dict().values())
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(simulated.state_dict()[name].cpu(), value)


def test_state_dicts_move_between_devices():
    reference, simulated = model(), copy.deepcopy(model()).to("sim:0")
    with torch.no_grad():
        for value in simulated.state_dict().values():
            value.zero_()
    simulated.load_state_dict(reference.state_dict())
    reference.load_state_dict(simulated.state_dict())
    torch.testing.assert_close(simulated[0].weight.cpu(), reference[0].weight)


@pytest.mark.parametrize("weights_only", [True, False])
def test_files_keep_values_devices_and_parameters(weights_only):
    file = io.BytesIO()
    simulated = model().to("sim:2")
    torch.save({"state": simulated.state_dict(), "weight": simulated[0].weight}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=weights_only)
    assert isinstance(loaded["weight"], nn.Parameter)
    assert loaded["weight"].device == loaded["state"]["0.weight"].device == torch.device("sim:2")
    torch.testing.assert_close(loaded["weight"].cpu(), simulated[0].weight.cpu())


def test_deepcopy_copies_values_gradients_and_shared_parameters():
    net = model().to("sim:0")
    net.tied = net[4].weight
    net(torch.randn(2, 3, 6, 6, device="sim:0")).sum().backward()
    other = copy.deepcopy(net)
    assert other.tied is other[4].weight
    assert isinstance(other.tied, nn.Parameter)
    assert sim.storage_id(other.tied) != sim.storage_id(net.tied)
    torch.testing.assert_close(other.tied.grad.cpu(), net.tied.grad.cpu())


def test_modules_move_between_devices_and_stay_usable():
    net = model().to("sim:0").to("sim:3")
    assert net(torch.randn(2, 3, 6, 6, device="sim:3")).device == torch.device("sim:3")
    assert net.cpu()(torch.randn(2, 3, 6, 6)).device.type == "cpu"
    assert torch.equal(net.sim("sim:1")[0].weight.cpu(), model()[0].weight)


def test_a_tensor_of_another_device_is_an_error():
    x, y = torch.ones(2, device="sim:0"), torch.ones(2, device="sim:1")
    for other in (y, torch.ones(2)):
        with pytest.raises(
            RuntimeError, match=rf"same device, but aten.add.Tensor got tensors on sim:0 and {other.device}"
        ):
            x + other
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.tensor(1.0, device="sim:1")
    assert (x + torch.tensor(1.0)).sum().item() == 4, "a CPU scalar is allowed"
    assert x[torch.tensor([0])].item() == 1, "CPU indices are allowed, as on CUDA"
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2)[torch.zeros(1, dtype=torch.long, device="sim:0")]


def test_devices_that_do_not_exist_are_refused():
    for make in (lambda: torch.ones(1, device="sim:4"), lambda: torch.ones(1).to("sim:9"), lambda: sim.Stream(4)):
        with pytest.raises(RuntimeError, match=r"device sim:\d does not exist: .* started with 4, sim:0 to sim:3"):
            make()
    with pytest.raises(ValueError, match="expected a sim device, got cpu"):
        sim.current_stream("cpu")


def test_a_device_without_index_is_the_current_one():
    with sim.device(2):
        assert torch.ones(1, device="sim").device == torch.device("sim:2")
        with torch.accelerator.device_index(1):
            assert sim.current_device() == 1
        assert sim.current_device() == 2
    assert sim.current_device() == 0
    with torch.device("sim:3"):
        assert torch.ones(1).device == torch.tensor([1.0]).device == torch.device("sim:3")


def test_a_second_start_needs_the_same_number():
    simulate(devices=4)
    with pytest.raises(RuntimeError, match="runs with 4 devices; this process cannot start 3"):
        simulate(devices=3)
    for wrong in (0, 65, "4"):
        with pytest.raises(ValueError, match=r"devices is .*; 1 to 64 are allowed"):
            simulate(devices=wrong)


def test_in_place_views_and_sparse_and_complex_tensors():
    x = torch.arange(6.0, device="sim:0").reshape(2, 3)
    x.t_()
    x.unsqueeze_(0)
    assert (x.shape, x.stride()) == ((1, 3, 2), (3, 1, 3))
    torch.testing.assert_close((x + 1).cpu(), torch.arange(1.0, 7.0).reshape(2, 3).t()[None])
    sparse = torch.eye(3).to_sparse().to("sim:1")
    assert (sparse.layout, sparse.device) == (torch.sparse_coo, torch.device("sim:1"))
    torch.testing.assert_close(sparse.to_dense().cpu(), torch.eye(3))
    z = torch.tensor([1 + 2j], device="sim:0")
    assert (z.conj() * z).real.item() == 5


def test_each_device_has_its_own_random_numbers():
    def draw():
        return [torch.rand(3, device=f"sim:{i}") for i in range(2)] + [nn.Dropout()(torch.ones(8, device="sim:0"))]

    torch.manual_seed(3)
    first = draw()
    torch.manual_seed(3)
    torch.rand(3, device="sim:1")
    second = draw()
    for one, other in zip(first[::2], second[::2], strict=True):
        assert torch.equal(one.cpu(), other.cpu())
    assert not torch.equal(first[1].cpu(), second[1].cpu())
    state = sim.get_rng_state(0)
    expected = torch.rand(2, device="sim:0").cpu()
    sim.set_rng_state(state, 0)
    assert torch.equal(torch.rand(2, device="sim:0").cpu(), expected)
    mean = nn.Dropout(0.25)(torch.ones(10000, device="sim:0")).mean().item()
    assert mean == pytest.approx(1, abs=0.05)


def test_repr_tolist_and_format():
    x = torch.ones(2, device="sim:1", requires_grad=True)
    assert repr(x) == "tensor([1., 1.], device='sim:1', requires_grad=True)"
    assert "grad_fn=<MulBackward0>" in repr(x * 2)
    assert x.tolist() == [1.0, 1.0]
    assert f"{x.detach().sum():.1f}" == "2.0"


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.ones(1))
        self.head.register_buffer("scale", self.scale)

    def forward(self, tokens):
        return self.head(self.embed(tokens)) * self.scale


@pytest.mark.parametrize("wrapped", [False, True])
def test_tied_weights_stay_tied_when_a_module_moves(wrapped):
    plain = Tied()
    net = copy.deepcopy(plain)
    moved = (nn.Sequential(net) if wrapped else net).to("sim:1")
    assert net.head.weight is net.embed.weight
    assert net.head.scale is net.scale
    assert len(list(moved.parameters())) == 1
    tokens = torch.arange(4)
    plain(tokens).sum().backward()
    moved(tokens.to("sim:1")).sum().backward()
    torch.testing.assert_close(net.head.weight.grad.cpu(), plain.head.weight.grad)
    back = moved.to("cpu")
    assert next(back.parameters()).device.type == "cpu"
    assert net.head.weight is net.embed.weight
