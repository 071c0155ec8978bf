"""CUDA graphs on the stand-in: what a capture records and refuses, and what a launch does."""

import copy
import time

import pytest
import torch
from torch import nn

from tests.cuda_stand_in import control
from tests.cuda_stand_in.cuda_runtime import counted, seconds, side, x  # noqa: F401  # fixtures

HERE = "cuda:0"
LAG_S = 0.2


def captured(work, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        result = work()
    return graph, result


def test_a_launch_repeats_the_operators_on_what_the_memory_holds_now(x):  # noqa: F811
    graph, doubled = captured(lambda: x * 2 + 1)
    for value in (3, 5):
        x.fill_(value)
        graph.replay()
        assert doubled.eq(2 * value + 1).all()
    assert counted(graph.replay) == {"graph_launches": 1}


def test_a_stream_joins_by_an_event_and_runs_beside_the_first(x, side):  # noqa: F811
    torch.cuda.synchronize()

    def work():
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            above = x + 1
        below = x - 1
        here.wait_stream(side)
        return above * below

    graph, product = captured(work)
    with control.lagging({0: LAG_S}):
        x.fill_(4)
        assert seconds(lambda: (graph.replay(), torch.cuda.synchronize())) < 3.5 * LAG_S  # of 4 tasks, two at once
    assert product.eq(15).all()


def wait_for_uncaptured(x, side):  # noqa: F811
    with torch.cuda.stream(side):
        x.add_(0)
    torch.cuda.current_stream().wait_stream(side)


REFUSED = {
    "item": (lambda x, side: x.sum().item(), "operation not permitted when stream is capturing"),  # noqa: F811
    "synchronize": (lambda x, side: torch.cuda.synchronize(), "operation not permitted when stream is capturing"),  # noqa: F811
    "pageable": (lambda x, side: x.copy_(torch.ones(1000), non_blocking=True), "unless the CPU tensor is pinned"),  # noqa: F811
    "query": (lambda x, side: torch.cuda.current_stream().record_event().query(), "operation not permitted"),  # noqa: F811
    "uncaptured": (wait_for_uncaptured, "dependency created on uncaptured work in another stream"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_in_a_capture_is_refused_and_the_device_goes_on(name, x, side):  # noqa: F811
    work, text = REFUSED[name]
    torch.cuda.synchronize()
    here = torch.cuda.current_stream()
    with pytest.raises(RuntimeError) as caught, torch.cuda.stream(here):  # torch leaves the stream of a failed capture
        captured(lambda: work(x, side))
    here.wait_stream(side)
    error, texts = caught.value, []
    while error is not None:
        texts.append(str(error))
        error = error.__context__
    assert any(text in message for message in texts), texts
    assert x.add(1).sum().item() == 2000


def test_a_stream_that_does_not_come_back_is_an_error(x, side):  # noqa: F811
    def work():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x + 1

    with pytest.raises(RuntimeError, match="capturing stream has unjoined work"):
        captured(work)


def test_each_launch_draws_other_numbers_and_those_of_eager_steps():
    torch.cuda.manual_seed(5)
    graph, drawn = captured(lambda: torch.rand(8, device=HERE))
    draws = []
    for _ in range(3):
        graph.replay()
        draws.append(drawn.tolist())
    torch.cuda.manual_seed(5)
    assert draws == [torch.rand(8, device=HERE).tolist() for _ in range(3)]
    assert draws[0] != draws[1] != draws[2]


def test_a_graphed_module_trains_as_the_plain_one():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).to(HERE)
    graphed = copy.deepcopy(plain)
    sample = torch.randn(6, 8, device=HERE)
    torch.cuda.make_graphed_callables(graphed, (sample,))
    graphed.load_state_dict(plain.state_dict())  # the warm-up has moved the statistics
    for _ in range(3):
        batch = torch.randn(6, 8, device=HERE)
        for module in (plain, graphed):
            module.zero_grad()
            module(batch).square().sum().backward()
        for mine, theirs in zip(graphed.parameters(), plain.parameters(), strict=True):
            assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.races
def test_two_branches_that_write_the_same_memory_are_a_race_in_the_launch(x, side):  # noqa: F811
    def work():
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            x.add_(1)
        x.mul_(2)
        here.wait_stream(side)

    graph, _ = captured(work)
    with pytest.raises(RuntimeError, match="write-write race: aten::mul_"):
        graph.replay()
    assert len(control.take_races()) == 1


def test_an_external_event_passes_in_the_middle_of_a_graph(x, side):  # noqa: F811
    event = torch.cuda.Event(external=True)

    def work():
        first = x + 1
        event.record()
        torch.cuda._sleep(int(LAG_S * 2e9))
        return first

    graph, first = captured(work)
    graph.replay()
    with torch.cuda.stream(side):
        side.wait_event(event)
        assert seconds(lambda: first.sum().item()) < LAG_S / 2
    assert seconds(torch.cuda.synchronize) > LAG_S / 4


def test_a_graphs_memory_is_free_when_it_is_gone():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    graph, made = captured(lambda: torch.zeros(8 << 20, device=HERE))
    assert torch.cuda.memory_reserved() - before >= 8 << 20
    del graph, made
    time.sleep(0.01)
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before
