"""The identity, use count and address of a storage, and the allocated bytes of a device."""

import gc

import pytest
import torch

sim = torch.get_device_module("sim")


def test_views_share_a_storage_and_copies_do_not():
    x = torch.zeros(4, 4, device="sim:0")
    assert sim.storage_id(x) == sim.storage_id(x[1:]) == sim.storage_id(x.t()) == sim.storage_id(x.detach())
    assert sim.storage_id(x) != sim.storage_id(x.clone())
    assert sim.storage_id(x) != sim.storage_id(x.to("sim:1"))


def test_addresses_are_those_of_the_first_element():
    x = torch.zeros(4, 4, device="sim:0")
    assert x[1:].data_ptr() == sim.data_ptr(x[1:]) == x.data_ptr() + 16
    assert x.t().data_ptr() == x.data_ptr()
    assert torch.empty(0, device="sim:0").data_ptr() == 0


def test_no_two_live_storages_share_an_address():
    tensors = [torch.empty(n, device=f"sim:{n % 4}") for n in range(1, 200)]
    assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)


def test_the_use_count_includes_tensors_of_python():
    x = torch.zeros(4, 4, device="sim:0")
    assert sim.storage_use_count(x) == 1
    view = x[1:]
    assert sim.storage_use_count(x) == sim.storage_use_count(view) == 2
    same = view
    assert sim.storage_use_count(x) == 2
    del view, same
    assert sim.storage_use_count(x) == 1


def test_the_use_count_includes_tensors_of_graphs():
    flat = torch.ones(8, device="sim:0")
    weight = flat[:4].detach().requires_grad_()
    assert sim.storage_use_count(flat) == 2
    y = (weight * weight).sum()
    del weight
    assert sim.storage_use_count(flat) == 2, "the graph holds the weight"
    y.backward()
    del y
    assert sim.storage_use_count(flat) == 1


def test_the_block_of_a_dead_storage_is_used_again():
    x = torch.zeros(100, device="sim:3")
    identity, address = sim.storage_id(x), x.data_ptr()
    del x
    y = torch.zeros(100, device="sim:3")
    assert y.data_ptr() == address
    assert sim.storage_id(y) != identity


def test_bytes_are_counted_in_blocks_of_512():
    gc.collect()
    before = sim.memory_allocated(2)
    x = torch.zeros(1000, device="sim:2")
    assert sim.memory_allocated(2) - before == 4096
    view = x[:10]
    del x
    assert sim.memory_allocated(2) - before == 4096
    del view
    assert sim.memory_allocated(2) == before


def test_the_peak_counts_tensors_alive_at_the_same_time():
    gc.collect()
    sim.reset_peak_memory_stats(2)
    before = sim.memory_allocated(2)
    for _ in range(3):
        x = torch.zeros(1000, device="sim:2")
        del x
    assert sim.max_memory_allocated(2) - before == 4096
    both = torch.zeros(1000, device="sim:2"), torch.zeros(1000, device="sim:2")
    assert sim.max_memory_allocated(2) - before == 8192
    del both


def test_setting_data_moves_the_tensor_to_the_other_storage():
    p = torch.nn.Parameter(torch.ones(3, device="sim:0"))
    other = torch.full((5,), 2.0, device="sim:1")
    p.data = other
    assert sim.storage_id(p) == sim.storage_id(other)
    assert (p.device, p.shape, p.sum().item()) == (other.device, (5,), 10)


def test_tensors_of_other_devices_are_refused():
    with pytest.raises(TypeError, match="expected a tensor on a sim device, got one on cpu"):
        sim.storage_id(torch.ones(1))
