import warnings

import pytest
import torch

from dpbench.doctor.child import gpu_links as links_module
from dpbench.doctor.child.gpu_links import examine_connections, examine_links, links_by_pair
from dpbench.measure.gpu.facts import GpuFacts

DEVICES = [torch.device("cuda", index) for index in range(3)]


class FakeModule:
    def __init__(self, reached):
        self._reached = reached

    def can_device_access_peer(self, one, other):
        return (one.index, other.index) in self._reached


@pytest.fixture
def examine(monkeypatch):
    """Return a function from pairs with peer access to the findings and the tried pairs."""

    def call(reached, corrupted=(), without_a_peer_left=(), links=("0-1 NV18", "0-2 SYS", "1-2 SYS")):
        tried = []

        def are_sound(*devices):
            pair = tuple(device.index for device in devices)
            tried.append(pair)
            if pair in corrupted:
                warnings.warn(f"copies from cuda:{pair[0]} to cuda:{pair[1]} arrive corrupted", stacklevel=2)
            return pair not in (*corrupted, *without_a_peer_left)

        monkeypatch.setattr(torch, "get_device_module", lambda device: FakeModule(reached))
        monkeypatch.setattr(links_module, "uuids_of", lambda devices: {})
        monkeypatch.setattr(links_module, "read_gpu_facts", lambda uuids: GpuFacts(links=tuple(links)))
        monkeypatch.setattr(links_module, "are_sound", are_sound)
        return {finding.what: finding for finding in examine_links(DEVICES)}, tried

    return call


BOTH_WAYS = {(0, 1), (1, 0)}


def test_each_pair_reports_its_link_and_copies_only_where_there_is_peer_access(examine):
    findings, tried = examine(BOTH_WAYS)
    assert findings["cuda:0 to cuda:1"].severity == "ok"
    assert findings["cuda:0 to cuda:1"].value == "peer access, link NV18; copies arrive intact"
    assert [findings[f"cuda:{i} to cuda:2"].severity for i in (0, 1)] == ["note", "note"]
    assert "no peer access; link SYS" in findings["cuda:0 to cuda:2"].value
    assert tried == [(0, 1)]


def test_corrupted_copies_are_reported_with_a_workaround(examine):
    findings, _ = examine(BOTH_WAYS, corrupted=[(0, 1)])
    assert findings["cuda:0 to cuda:1"].severity == "unreliable"
    assert "arrive corrupted" in findings["cuda:0 to cuda:1"].value
    assert "through the host" in findings["cuda:0 to cuda:1"].advice


def test_a_pair_without_a_peer_left_is_a_note(examine):
    findings, _ = examine(BOTH_WAYS, without_a_peer_left=[(0, 1)])
    assert findings["cuda:0 to cuda:1"].severity == "note"
    assert findings["cuda:0 to cuda:1"].value == "no peer left, link NV18"


def test_peer_access_in_one_direction_only_is_reported(examine):
    findings, _ = examine({(1, 0)}, links=())
    assert "one direction only, link unknown" in findings["cuda:0 to cuda:1"].value


def test_one_device_has_no_pairs(examine, monkeypatch):
    examine(BOTH_WAYS)
    assert examine_links(DEVICES[:1]) == []


def test_links_by_pair():
    assert links_by_pair(["0-1 NV18", "10-11 same board"]) == {(0, 1): "NV18", (10, 11): "same board"}


@pytest.mark.parametrize(
    ("devices", "value", "severity"),
    [(6, None, "ok"), (7, None, "note"), (8, "32", "ok"), (8, "8", "note"), (2, "33", "note"), (2, "many", "note")],
)
def test_too_few_queues_for_the_wrappers_streams_are_noted(devices, value, severity):
    finding = examine_connections(devices, value)
    assert (finding.what, finding.severity) == ("CUDA_DEVICE_MAX_CONNECTIONS", severity)


def test_the_default_number_of_queues_is_named():
    finding = examine_connections(8, None)
    assert finding.value == "8 queues by default, up to 10 streams of dpbench.parallel"
    assert finding.advice == "streams that share a queue wait for each other; set it to 32 before Python"


def test_a_number_of_queues_that_cuda_does_not_take_is_named_with_those_it_takes():
    assert examine_connections(2, "many").advice == "allowed: a whole number from 1 to 32"
