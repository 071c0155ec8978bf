"""The child that measures, as far as it runs without an accelerator."""

from types import SimpleNamespace

import torch

from dpbench.doctor.child import host_calls, timing
from dpbench.doctor.child.host_calls import _Chain, _Launches, _slope, handover_s
from dpbench.doctor.child.measure_machine import _Failures, numa_node
from dpbench.doctor.child.timing import repeated


def test_there_are_three_to_twenty_repeats_after_one_that_does_not_count():
    numbers = iter(range(100))
    assert repeated(lambda: next(numbers), 60.0) == tuple(range(1, 21))
    assert repeated(lambda: next(numbers), 0.0) == (22, 23, 24)


def test_a_slope_has_no_warm_up_and_both_works_in_turn(monkeypatch):
    monkeypatch.setattr(timing, "_MOST", 3)
    short, long = iter(range(10)), iter(range(10, 20))
    found = _slope((5, 25), lambda: next(short), lambda: next(long))
    assert (found.short_s, found.long_s) == ((1, 2, 3), (11, 12, 13))


def test_operators_are_counted_and_views_are_not():
    x = torch.ones(3, 3, requires_grad=True)
    with _Launches() as launches:
        (x.t() @ x.view(9).view(3, 3)).relu()
    assert launches.count == 2


def test_the_chain_has_an_operator_for_each_layer_both_ways():
    chain = _Chain(torch.device("cpu"), 2)
    counts = []
    for call in (chain.by_modules, chain.by_operators):
        with _Launches() as launches:
            call()
        counts.append(launches.count)
    assert counts == [len(chain.layers)] * 2 == [6, 6]
    torch.testing.assert_close(chain.by_modules(), chain.by_operators())
    loss = chain.loss()
    with _Launches() as launches:
        loss.backward()
    assert launches.count >= 5 * 2


def test_two_threads_hand_the_lock_over(monkeypatch):
    monkeypatch.setattr(host_calls, "_HANDOVERS", 50)
    assert 0 < handover_s() < 0.1


def test_a_device_without_a_pci_address_has_no_numa_node():
    assert numa_node(SimpleNamespace(name="x")) is None
    assert numa_node(SimpleNamespace(pci_domain_id=0xFFFF, pci_bus_id=0xFF, pci_device_id=0x1F)) is None


def test_what_raises_is_named_and_the_rest_is_measured():
    def refuse():
        raise torch.OutOfMemoryError("no memory\nat all")

    failures = _Failures()
    assert failures.each(iter([("one", refuse), ("two", lambda: 2)])) == (2,)
    assert failures.reasons == {"one": "no memory"}
