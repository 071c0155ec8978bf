"""What is recorded of waits."""

from dpbench.simulator.machine import Machine
from dpbench.simulator.record import HostWait, Recording, Wait


def test_a_wait_names_what_the_other_stream_has_itself_waited_for():
    machine, recorded = Machine(3), Recording(3)
    early, late = machine.launch("a", 0, (), ())[0].event, machine.launch("b", 0, (), ())[0].event
    with machine.recorder.record(recorded):
        machine.wait_stream(1, 0)
        machine.wait_stream(2, 1)
        machine.wait_stream(2, 0)
        machine.host_wait([2])
        machine.host_wait([1])
    waits = [event for event in recorded.events if isinstance(event, Wait)]
    assert early < late
    assert [(wait.stream, wait.after) for wait in waits] == [(1, (late,)), (2, (late,))]
    assert [event.after for event in recorded.events if isinstance(event, HostWait)] == [(late,)]
