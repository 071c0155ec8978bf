from rich.console import Console

from dpbench.cases.machine_info import MachineInfo
from dpbench.doctor.findings import Findings, note, ok, unknown, unreliable
from dpbench.doctor.health import ask_health, doctor_json, doctor_text, is_reliable
from tests.fakes import ended

MACHINE = MachineInfo(python="3.11", torch="2.13", cpu_model="a CPU", cores=2, memory_bytes=2**30)
FINDINGS = [ok("NUMA nodes", "1 of 1"), note("turbo", "on [sic]", "expect drift"), unknown("CPU clock", "not found")]
UNRELIABLE = [*FINDINGS, unreliable("other load", "90 %", "stop it")]


def text(findings: list, *, width: int = 200, with_details: bool = True) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(doctor_text(MACHINE, findings, with_details=with_details))
    return console.export_text()


def test_every_finding_is_a_line_with_its_mark_and_advice() -> None:
    lines = [" ".join(line.split()) for line in text(UNRELIABLE).splitlines()]
    assert "NUMA nodes ok 1 of 1" in lines
    assert "turbo note on [sic]; expect drift" in lines
    assert "CPU clock note unknown: not found" in lines
    assert "other load UNRELIABLE 90 %; stop it" in lines
    assert "Measurements are unreliable: other load." in lines


def test_without_an_unreliable_finding_measurements_are_reliable() -> None:
    assert is_reliable(FINDINGS)
    assert not is_reliable(UNRELIABLE)
    assert "Nothing here makes measurements unreliable." in text(FINDINGS)


def test_without_details_it_is_short() -> None:
    lines = text(UNRELIABLE, with_details=False).splitlines()
    assert lines[1:3] == ["UNRELIABLE other load: 90 %; stop it", "note turbo: on [sic]"]
    assert lines[3] == "unknown: CPU clock; 1 findings are ok; --details has all, with advice"
    assert lines[-1] == "Measurements are unreliable: other load."
    many = [*UNRELIABLE, *(note(f"GPU {i}", "held back by its clocks " * 2) for i in range(40))]
    shown = text(many, width=80, with_details=False)
    assert len(shown.splitlines()) <= 25
    assert "33 more notes" in shown


def test_json_has_the_findings_unchanged() -> None:
    report = doctor_json(MACHINE, UNRELIABLE, ["a warning"])
    assert report["findings"][1] == {"severity": "note", "what": "turbo", "value": "on [sic]", "advice": "expect drift"}
    assert report["reliable"] is False
    assert report["warnings"] == ["a warning"]
    assert doctor_json(MACHINE, FINDINGS, [])["reliable"] is True


FOUND = Findings(findings=(note("turbo", "on", "beware"), unreliable("other load", "90 %", "stop it")))


def test_the_childs_findings_are_returned():
    assert ask_health(launch=lambda *_: ended(0, FOUND.model_dump_json().encode())) == FOUND.findings


def test_a_child_that_crashes_is_a_finding():
    (finding,) = ask_health(launch=lambda *_: ended(-11, b"", tail=b"Xid 79\nGPU has fallen off the bus\n"))
    assert finding.severity == "unreliable"
    assert "SIGSEGV" in finding.value
    assert "fallen off the bus" in finding.advice


def test_a_real_child_examines_this_machine():
    findings = {finding.what: finding for finding in ask_health()}
    assert {"other load", "steal time", "CPU governor", "NUMA nodes", "host memory bandwidth"} <= set(findings)
    assert "examination" not in findings
