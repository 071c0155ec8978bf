"""Questions about CUDA that only a GPU answers: a printed line for each, and one JSON file.

    python -m benchmarks.instruments.gpu_probe FILE [QUESTION...]

Each question runs in a process of its own, so one that crashes, hangs or breaks CUDA fails alone. The file is written
anew after each answer. Exit codes: 0 all answered, 1 some failed, 77 no GPU.
"""

import copy
import gc
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from json import dumps
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.instruments.gpu_steps import NOT_RUN
from dpbench.jobs.probe_child import first_line
from dpbench.measure.gpu.facts import read_gpu_facts, uuids_of
from dpbench.parallel.graphs import WARM_UPS
from dpbench.parallel.lanes import use_stream
from dpbench.text.files import replace_text
from tests.gpu.device import DEVICE, LONG, Moment, is_stand_in, pause, synchronize, wrap
from tests.parallel.models import Call
from tests.parallel.remote import take_remote_paths

Answer = dict[str, Any]
Question = Callable[[], Answer]
SHORT = 100_000_000  # cycles: 50 ms at 2 GHz, and LONG is 300 ms
TRIES = 5
LIMIT_S = 20


def machine() -> Answer:
    gpu, driver = torch.cuda.get_device_properties(DEVICE), read_gpu_facts(uuids_of([DEVICE])).driver
    versions = {"driver": driver, "torch": torch.__version__, "cuda": torch.version.cuda}
    return {"gpu": gpu.name, "device_memory_mib": gpu.total_memory >> 20, **versions}


def host_us(call: Callable[[], object], calls: int = 200, series: int = TRIES, is_busy: bool = False) -> float:
    """The host's microseconds for a call: the median of so many series. Each starts on an idle GPU, or on one whose
    current stream has work for 50 ms.
    """
    call()
    times_s = []
    for _ in range(series):
        synchronize()
        if is_busy:
            torch.cuda._sleep(SHORT)
        begin_s = time.perf_counter()
        for _ in range(calls):
            call()
        times_s.append(time.perf_counter() - begin_s)
    return round(1e6 * median(times_s) / calls, 3)


def gpu_ms(call: Callable[[], object]) -> float:
    """The GPU's milliseconds for a call that is issued while it sleeps: the least of several."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times_ms = []
    for _ in range(TRIES):
        torch.cuda._sleep(SHORT)
        begin.record()
        call()
        end.record()
        synchronize()
        times_ms.append(float(begin.elapsed_time(end)))
    return round(min(times_ms), 4)


def captured(work: Callable[[], object], stream: torch.cuda.Stream | None = None) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        work()
    return graph


def additions(count: int) -> Callable[[], object]:
    """A function that starts so many kernels, each of which adds one number."""
    x = torch.zeros(1, device=DEVICE)
    return lambda: [x.add_(1) for _ in range(count)]


def host_calls() -> Answer:
    """A stream switch enters and leaves a block of `use_stream`."""
    tensor, event = torch.zeros(1 << 20, device=DEVICE), torch.cuda.Event()
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()

    def record() -> None:  # without a stream, torch first looks for the current one, which takes longer than the record
        event.record(main)

    def switch() -> None:
        with use_stream(DEVICE, side):
            pass

    def record_and_wait() -> None:
        event.record(main)
        event.wait(side)

    times_us = {"stream_switch_us": host_us(switch), "record_stream_us": host_us(lambda: tensor.record_stream(side))}
    for suffix, is_busy in {"us": False, "on_a_busy_gpu_us": True}.items():
        times_us[f"operator_{suffix}"] = host_us(additions(1), is_busy=is_busy)
        times_us[f"event_record_{suffix}"] = host_us(record, is_busy=is_busy)
        times_us[f"event_record_and_wait_{suffix}"] = host_us(record_and_wait, is_busy=is_busy)
    return times_us


def graph_launches() -> Answer:
    """Onto an idle GPU. A node is a kernel, or the record of an event."""
    times_us = {nodes: host_us(captured(additions(nodes)).replay, 1, 50) for nodes in (1, 10, 100, 1000)}
    add, events = additions(1), [torch.cuda.Event(external=True) for _ in range(100)]
    recording_us = host_us(captured(lambda: [(add(), event.record()) for event in events]).replay, 1, 50)
    answer = {f"launch_of_{nodes}_nodes_us": time_us for nodes, time_us in times_us.items()}
    answer["node_us"] = round((times_us[1000] - times_us[100]) / 900, 4)
    answer["event_node_us"] = round((recording_us - times_us[100]) / 100, 4)
    return answer


def kernel_intervals() -> Answer:
    """From one kernel's start to the next one's, each for the last one's result, without a wait for the host.

    `add` adds one number. `product` multiplies 32 x 64 and 64 x 64 matrices, as a layer of `mlp/small`.
    """
    x, weight = torch.zeros(32, 64, device=DEVICE), torch.zeros(64, 64, device=DEVICE)

    def products() -> None:
        y = x
        for _ in range(500):
            y = torch.mm(y, weight)

    answer, us_of_one = {}, 1000 / 500
    for name, run in {"add": additions(500), "product": products}.items():
        answer |= {
            f"{name}_eager_us": us_of_one * gpu_ms(run),
            f"{name}_graph_us": us_of_one * gpu_ms(captured(run).replay),
        }
    return answer


def batch_beside_compute() -> Answer:
    """Matrix products, a batch's copy from pinned memory, and both at once on two streams."""
    size, batch_mib = (64, 1) if is_stand_in() else (4096, 256)
    x, side = torch.randn(size, size, device=DEVICE), torch.cuda.Stream()
    batch = torch.empty(batch_mib << 20, dtype=torch.uint8).pin_memory()

    def issue(products: int, copies: int) -> None:
        side.wait_stream(torch.cuda.current_stream())
        for _ in range(products):
            torch.mm(x, x)
        with use_stream(DEVICE, side):
            for _ in range(copies):
                batch.to(DEVICE, non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)

    products_ms, copy_ms, both_ms = (gpu_ms(partial(issue, *counts)) for counts in ((5, 0), (0, 1), (5, 1)))
    overlap_percent = round(100 * (products_ms + copy_ms - both_ms) / min(products_ms, copy_ms))
    return {"products_ms": products_ms, "copy_ms": copy_ms, "both_ms": both_ms, "overlap_percent": overlap_percent}


def wait_outside_a_graph() -> Answer:
    """Count launches of which a wait on another stream sees the work before the event, and not the graph's end."""
    event, side = torch.cuda.Event(external=True), torch.cuda.Stream()
    x, answer = torch.zeros(1000, device=DEVICE), {"tries": TRIES, "saw_this_launch": 0, "before_its_end": 0}

    def work() -> None:
        torch.cuda._sleep(SHORT)
        x.add_(1)
        event.record()
        torch.cuda._sleep(LONG)

    graph = captured(work)
    x.sum().item()  # CUDA loads a kernel at its first launch, and that may wait for the device
    for launch in range(1, TRIES + 1):
        graph.replay()
        done = Moment()
        with use_stream(DEVICE, side):
            side.wait_event(event)
            answer["saw_this_launch"] += x.sum().item() == 1000 * launch
        answer["before_its_end"] += not done.has_come()
        synchronize()
    return answer


def wait_in_a_graph() -> Answer:
    """Count tries in which a graph's wait is for the record before its launch, and not for a later one."""
    first, second, event = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Event(external=True)
    event.record(first)
    graph, answer = captured(lambda: event.wait(first), first), {"tries": 0, "bound_at_the_launch": 0}
    for _ in range(TRIES):
        with use_stream(DEVICE, first):
            pause(SHORT)
            graph.replay()
            done = Moment()
        with use_stream(DEVICE, second):
            pause(LONG)
            event.record()
        counts = not done.has_come()  # the work before the launch still runs, right after the second record
        done.wait()
        answer["tries"] += counts
        answer["bound_at_the_launch"] += counts and not event.query()
        synchronize()
    return answer


def backward(module: nn.Module, x: Tensor) -> list[Tensor]:
    """Run a step without an optimizer, wait for it, and return its gradients."""
    module.zero_grad()
    module(x).square().sum().backward()
    synchronize()
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def difference(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    return max(float((one - other).detach().abs().max()) for one, other in zip(tensors, others, strict=True))


def weights_that_move() -> Answer:
    """Move the weights of a module that uses cuBLAS, so that it is captured again, and compare the gradients."""
    base, x = nn.Linear(512, 512).to(DEVICE), torch.randn(64, 512, device=DEVICE)
    module, largest = wrap(base, 2, graphs=True), 0.0
    for step in range(WARM_UPS + 6):
        if step in (WARM_UPS + 2, WARM_UPS + 4):
            base.weight.data = base.weight.data.clone()
        largest = max(largest, difference(backward(module, x), backward(copy.deepcopy(base), x)))
    return {"largest_difference": largest, "report": module.graph_report()}


def capture_in_a_new_thread() -> Answer:
    """Warm up on this thread, and then capture on one that has no handles of cuBLAS and cuDNN yet."""
    base = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4)).to(DEVICE)
    module, x = wrap(base, 2, graphs=True), torch.randn(8, 3, 8, 8, device=DEVICE)
    for _ in range(WARM_UPS):
        backward(module, x)
    with ThreadPoolExecutor(1) as thread:
        for _ in range(WARM_UPS + 1):  # the warm-ups start again on another thread
            gradients = thread.submit(backward, module, x).result()
    return {"largest_difference": difference(gradients, backward(base, x)), "report": module.graph_report()}


def trained(lanes: int, graphs: bool, is_remote: bool) -> list[Tensor]:
    """Weights after a short training with dropout. Remote lanes take the paths of several GPUs."""
    width = 32 if is_stand_in() else 1024
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))]
    with pytest.MonkeyPatch.context() as patch:
        if is_remote:
            take_remote_paths(patch)
        module = wrap(nn.Sequential(*layers).to(DEVICE), lanes, graphs=graphs, bucket_bytes=8 << 20)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
        for _ in range(WARM_UPS + 6):
            backward(module, torch.randn(256, width, device=DEVICE))
            optimizer.step()
    return [parameter.detach().clone() for parameter in module.parameters()]


def graphs_beside_eager() -> Answer:
    cases = {f"{lanes}{'_remote' * far}_lanes": (lanes, far) for lanes in (2, 4) for far in (False, True)}
    return {
        f"largest_difference_on_{name}": difference(trained(lanes, False, far), trained(lanes, True, far))
        for name, (lanes, far) in cases.items()
    }


def memory_of_a_lane() -> Answer:
    """What the allocator reserves for each remote lane more, from 2 to 4 lanes."""

    def reserved_mib(lanes: int, graphs: bool) -> float:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before_bytes = torch.cuda.memory_reserved()
        trained(lanes, graphs, is_remote=True)
        return (torch.cuda.max_memory_reserved() - before_bytes) / (1 << 20)

    answer = {}
    for name, graphs in {"eager_mib": False, "graphs_mib": True}.items():
        _, four, two = (reserved_mib(lanes, graphs) for lanes in (4, 4, 2))  # libraries set themselves up in the first
        answer[name] = round((four - two) / 2, 1)
    return answer


def parts_of_a_step() -> Answer:
    """On two lanes: the host until the part is issued, and from then until the GPU is idle."""
    width, layers = (64, 64) if not is_stand_in() else (8, 4)
    x, answer = torch.randn(64, width, device=DEVICE), {}
    for name, graphs in {"eager": False, "graphs": True}.items():
        torch.manual_seed(0)
        base = nn.Sequential(*[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())])
        module = wrap(base.to(DEVICE), 2, graphs=graphs)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
        times_us: dict[str, list[float]] = {}
        for _ in range(WARM_UPS + 20):
            loss = timed(times_us, f"{name}_forward", partial(squares, module, x))
            timed(times_us, f"{name}_backward", loss.backward)
            timed(times_us, f"{name}_optimizer", optimizer.step)
            optimizer.zero_grad()
        answer |= {part: round(median(times)) for part, times in times_us.items()}
    return answer


def squares(module: nn.Module, x: Tensor) -> Tensor:
    return module(x).square().sum()


def timed(times_us: dict[str, list[float]], name: str, part: Callable[[], Any]) -> Any:
    begin_s = time.perf_counter()
    result = part()
    issued_s = time.perf_counter()
    synchronize()
    times_us.setdefault(f"{name}_host_us", []).append(1e6 * (issued_s - begin_s))
    times_us.setdefault(f"{name}_then_gpu_us", []).append(1e6 * (time.perf_counter() - issued_s))
    return result


def weights_to_a_lane() -> Answer:
    """A forward of eight large layers without gradients on one and two lanes: the second lane gets a copy."""
    width = 64 if is_stand_in() else 4096
    base, x = (
        nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]).to(DEVICE),
        torch.randn(8, width, device=DEVICE),
    )
    times_us: dict[str, list[float]] = {}
    with torch.no_grad():
        for lanes in (1, 2):
            module = wrap(base, lanes)
            for _ in range(20):
                timed(times_us, f"forward_on_{lanes}_lanes", partial(module, x))
    return {
        "weights_mib": 8 * 4 * width * width >> 20,
        **{part: round(median(times)) for part, times in times_us.items()},
    }


def refusal() -> Answer:
    """Let a capture be refused. Then draw, free memory and capture another module in the same process."""
    reads = Call(lambda self, x: self.linear(x) * float(x.sum().item() > 0), linear=nn.Linear(8, 8))
    refused, good = (wrap(base.to(DEVICE), 2, graphs=True) for base in (reads, nn.Linear(8, 8)))
    for module in (refused, good):
        for _ in range(WARM_UPS + 2):
            backward(module, torch.randn(8, 8, device=DEVICE))
        torch.cuda.empty_cache()
    return {"refused": refused.graph_report(), "afterwards": good.graph_report()}


TIMES = (host_calls, graph_launches, kernel_intervals, batch_beside_compute)
WAITS = (wait_outside_a_graph, wait_in_a_graph)
GRAPHS = (weights_that_move, capture_in_a_new_thread, graphs_beside_eager, memory_of_a_lane, refusal)
STEPS = (parts_of_a_step, weights_to_a_lane)
QUESTIONS: tuple[Question, ...] = (machine, *TIMES, *WAITS, *STEPS, *GRAPHS)


def answer_of(question: Question) -> Answer | str:
    """The reason if the question fails, or does not end in `LIMIT_S`."""
    # Nothing handles the alarm, so it ends the process, also while CUDA waits.
    with ProcessPoolExecutor(1, get_context("fork"), initializer=signal.alarm, initargs=(LIMIT_S,)) as pool:
        future = pool.submit(question)
        error = future.exception()
    return future.result() if error is None else f"{type(error).__name__}: {first_line(error)}"


def main(path: Path, questions: Sequence[Question] = QUESTIONS) -> int:
    answers: dict[str, Answer | str] = {}
    for question in questions:
        name = question.__name__
        answers[name] = answer_of(question)
        print(name, dumps(answers[name]), flush=True)
        if isinstance(answers.get("machine"), str):
            return NOT_RUN
        replace_text(path, dumps({"schema": 1, "answers": answers}, indent=2) + "\n")
    failed = [name for name, answer in answers.items() if isinstance(answer, str)]
    print(f"{len(answers) - len(failed)} of {len(questions)} questions have an answer", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    asked = {"machine", *sys.argv[2:]}
    sys.exit(
        main(
            Path(sys.argv[1]),
            [question for question in QUESTIONS if question.__name__ in asked or asked == {"machine"}],
        )
    )
