"""The bytes of each route in one training step, exactly, on as many simulated devices as servers have."""

import pytest

from dpbench.cases.case import Case
from dpbench.jobs.count import count_all, countable
from dpbench.records.count_record import Phase
from tests.simulated import needs_simulator

WORKLOADS, SIZES = ("mlp/tiny", "convnet/tiny"), (4, 8)
STAR, CHAIN = "tuned[route=star]", "tuned[route=chain]"


@pytest.fixture(scope="module")
def copies():
    """The copies of the third step, by workload, number of devices, variant and phase."""
    cases = [
        Case(variant=name, workload=workload, batch=32, devices=tuple(f"sim:{i}" for i in range(count)), threads=1)
        for workload in WORKLOADS
        for count in SIZES
        for name in (STAR, CHAIN)
    ]
    return {
        (record.case.workload, len(record.case.devices), str(record.case.variant), phase): counts.copies
        for record in countable(count_all(cases))
        for phase, counts in record.counts.phases.items()
    }


@needs_simulator
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("count", SIZES)
def test_weights_and_gradients_take_the_route_and_outputs_go_straight(copies, workload, count):
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        chain, star = copies[workload, count, CHAIN, phase], copies[workload, count, STAR, phase]
        expected = {link: traffic for link, traffic in star.items() if "host" in link}
        for lane in range(1, count):
            down, up = star[f"sim:0->sim:{lane}"], star[f"sim:{lane}->sim:0"]
            parent = lane - 1
            routed, straight = (down, up) if phase is Phase.FORWARD else (up, down)
            ends = (parent, lane) if phase is Phase.FORWARD else (lane, parent)
            expected["sim:{}->sim:{}".format(*ends)] = routed
            other = (lane, 0) if phase is Phase.FORWARD else (0, lane)
            expected["sim:{}->sim:{}".format(*other)] = straight
        assert chain == dict(sorted(expected.items()))


@needs_simulator
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("count", SIZES)
def test_along_a_chain_no_device_sends_weights_or_gradients_twice(copies, workload, count):
    """What a device sends beside them is its output, or the gradients of all outputs, as in a star."""
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        star, chain = (copies[workload, count, variant, phase] for variant in (STAR, CHAIN))
        routed = star["sim:0->sim:1" if phase is Phase.FORWARD else "sim:1->sim:0"].size_bytes
        for device in range(count):
            sent = sum(traffic.size_bytes for link, traffic in chain.items() if link.startswith(f"sim:{device}->sim"))
            if phase is Phase.FORWARD:
                outputs = 0 if device == 0 else star[f"sim:{device}->sim:0"].size_bytes
                times = int(device < count - 1)
            else:
                outputs = 0 if device else sum(star[f"sim:0->sim:{lane}"].size_bytes for lane in range(1, count))
                times = int(device > 0)
            assert sent == times * routed + outputs
