"""Tensors that grow take new memory, and tensor subclasses stay what they are."""

import pytest
import torch
from torch import nn

from dpbench.simulator import RaceError, recording
from dpbench.simulator.torch_sim import memory_allocated

sim = torch.get_device_module("sim")


def test_a_tensor_that_grows_moves_with_its_values_and_its_views():
    before = memory_allocated(0)
    tensor = torch.arange(4.0, device="sim:0")
    view, address = tensor[1:3], tensor.data_ptr()
    with recording() as events:
        tensor.resize_(1000)
    assert tensor.data_ptr() != address
    assert view.data_ptr() == tensor.data_ptr() + 4
    assert tensor[:4].tolist() == [0, 1, 2, 3]
    assert view.tolist() == [1, 2]
    assert memory_allocated(0) - before == 4096
    assert [type(event).__name__ for event in events.events] == ["Allocate", "Operator", "Free"]


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(
    "grow", [lambda x: torch.add(torch.ones(300, device="sim:0"), 1, out=x), lambda x: x.resize_(300)]
)
def test_growth_of_memory_that_another_stream_reads_is_a_race(grow):
    x, side = torch.ones(2, device="sim:0"), sim.Stream(0)
    side.wait_stream(sim.current_stream(0))
    with sim.stream(side):
        x.sum()
    grow(x)
    with pytest.raises(RaceError, match="may get the freed memory of"):
        torch.ones(2, device="sim:0")


class Marked(torch.Tensor):
    def twice(self):
        return self * 2


class Counting(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counting.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_keeps_its_methods_on_the_device_and_is_itself_on_the_cpu():
    for tensor in (torch.ones(3).as_subclass(Marked).to("sim:0"), torch.ones(3, device="sim:0").as_subclass(Marked)):
        assert isinstance(tensor.twice() + 1, Marked)
        assert isinstance(tensor.to("sim:1"), Marked)
        assert type(tensor.cpu()) is Marked
        assert (tensor.twice() + torch.ones(3, device="sim:0")).tolist() == [3, 3, 3]


def test_a_subclass_sees_the_operators_of_the_program_alone():
    tensor = torch.ones(3, device="sim:0").as_subclass(Counting)
    Counting.calls = 0
    tensor + 1
    assert Counting.calls == 1


def test_gradients_go_through_a_subclass_and_into_each_replica():
    base = nn.Linear(3, 3)
    base.register_buffer("marked", torch.ones(3).as_subclass(Marked))
    base.register_forward_hook(lambda self, _, out: kinds.append(type(self.marked).__mro__[1]) or out * self.marked)
    kinds = []
    nn.DataParallel(base.to("sim:0"))(torch.ones(4, 3)).sum().backward()
    assert kinds == [Marked] * 4
    assert base.weight.grad.cpu().tolist() == [[4.0] * 3] * 3
