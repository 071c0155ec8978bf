"""The recorded waits hold only events that were not waited for before."""

from dpbench.records.recording import HostWait, Recording, Wait
from dpbench.simulator.simulation import Simulation


def test_a_wait_includes_the_events_that_the_other_stream_has_waited_for():
    simulation, recorded = Simulation(3), Recording(3)
    early, late = simulation.launch("a", 0, (), ())[0].event, simulation.launch("b", 0, (), ())[0].event
    with simulation.recorder.record(recorded):
        simulation.wait_stream(1, 0)
        simulation.wait_stream(2, 1)
        simulation.wait_stream(2, 0)
        simulation.host_wait([2])
        simulation.host_wait([1])
    waits = [event for event in recorded.events if isinstance(event, Wait)]
    assert early < late
    assert [(wait.stream, wait.after) for wait in waits] == [(1, (late,)), (2, (late,))]
    assert [event.after for event in recorded.events if isinstance(event, HostWait)] == [(late,)]
