"""Two machines on one: two network namespaces joined by a veth pair, a torchrun agent in each, gloo between them."""

import os
import subprocess
import time

import pytest

from dpbench.elastic.elastic_record import EventKind, RunScheme
from dpbench.elastic.outage import OutagePart, outages_of
from dpbench.elastic.request import parse_plan
from dpbench.elastic.run_files import ElasticJob, read_events
from dpbench.engine.process_tree import nothing_left_behind
from dpbench.engine.start import child_command
from tests.elastic.making import SETTINGS
from tests.two_machines import Machine

TIME_LIMIT_S = 280


def start_agent(machine: Machine, job: ElasticJob) -> subprocess.Popen[bytes]:
    command = ["ip", "netns", "exec", machine.name, *child_command("dpbench.elastic.child.agent")]
    agent = subprocess.Popen(
        [*command, "--parent-pid", str(os.getpid())],
        stdin=subprocess.PIPE,
        env=os.environ | {"GLOO_SOCKET_IFNAME": "veth0", "TP_SOCKET_IFNAME": "veth0", "OMP_NUM_THREADS": "1"},
    )
    agent.stdin.write(job.model_dump_json().encode())
    agent.stdin.close()
    return agent


@pytest.mark.exhaustive
@pytest.mark.timeout(TIME_LIMIT_S + 20)
def test_both_machines_restart_when_a_worker_of_one_is_killed(machines, tmp_path):
    checkpoints, events = tmp_path / "checkpoints", tmp_path / "events"
    checkpoints.mkdir()
    events.mkdir()
    settings = SETTINGS.model_copy(
        update={"ranks": 4, "steps": 9, "max_restarts": 20, "hang_timeout_s": 120.0, "plan": parse_plan("kill@7:3")}
    )
    job = ElasticJob(
        scheme=RunScheme.ELASTIC,
        settings=settings,
        faults=settings.plan,
        checkpoints=checkpoints,
        events=events,
        nodes=2,
        endpoint=f"{machines[0].address}:29400",
    )
    deadline_s = time.monotonic() + TIME_LIMIT_S
    with nothing_left_behind():
        agents = [
            start_agent(
                machine,
                job.model_copy(update={"agent": number, "is_host": number == 0, "local_address": machine.address}),
            )
            for number, machine in enumerate(machines)
        ]
        codes = [agent.wait(deadline_s - time.monotonic()) for agent in agents]
        left = [machine.pids() for machine in machines]
    assert codes == [0, 0]
    assert left == [[], []]
    found = read_events(events)
    (outage,) = outages_of(found)
    assert set(outage.parts) == set(OutagePart)
    assert outage.redone_steps == 2
    ends = [event for event in found if event.kind is EventKind.DONE]
    assert sorted(event.rank for event in ends) == [0, 1, 2, 3]
    assert {event.agent for event in ends} == {0, 1}
    assert len({event.digest for event in ends}) == 1
