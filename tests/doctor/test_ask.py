from dpbench.doctor.findings import Findings, note, unreliable
from dpbench.doctor.health import ask_health
from tests.fakes import ended

FOUND = Findings(findings=(note("turbo", "on", "beware"), unreliable("other load", "90 %", "stop it")))


def test_the_childs_findings_are_returned():
    assert ask_health(launch=lambda *_: ended(0, FOUND.model_dump_json().encode())) == FOUND.findings


def test_a_child_that_crashes_is_a_finding():
    (found,) = ask_health(launch=lambda *_: ended(-11, b"", tail=b"Xid 79\nGPU has fallen off the bus\n"))
    assert found.severity == "unreliable"
    assert "SIGSEGV" in found.value
    assert "fallen off the bus" in found.advice


def test_a_real_child_examines_this_machine():
    found = {finding.what: finding for finding in ask_health()}
    assert {"other load", "steal time", "CPU governor", "NUMA nodes", "host memory bandwidth"} <= set(found)
    assert "examination" not in found
