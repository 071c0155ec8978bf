"""Every collective that this process issues while a script runs: its part of a step, its bytes, and its line.

    script, DDP's reducer (C++), FSDP2, functional collectives
                 │
        ops of c10d, for CPU ──> this module's kernel ──> the kernel that was there ──> gloo

A collective is exposed if the rank computes nothing between its issue and the moment when its result is needed. The
rank needs it at `Work.wait`, or when an operator touches its tensors. Two exceptions:

- DDP's reducer needs all buckets when an operator touches one, or at the end of the backward. What a hook adds by
  `Future.then` is no computation and needs no result.
- FSDP2's collectives have a stream of their own on GPUs, so `wait` does not count there. It needs its reductions at the
  end of the backward.

Views, empty tensors, and the copies that FSDP2 and DDP's hooks make are no computation here.
"""

import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, Self

import torch
from torch import autograd
from torch._C import _distributed_c10d as c10d
from torch.library import Library
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpbench.measure.counted.details import place_of
from dpbench.records.count_record import Place
from dpbench.records.script_record import Issue, Part, RankIssues

_OPERATORS: dict[str, tuple[str, str, Callable[[], Any] | None]] = {
    "allreduce_": ("all_reduce", "allreduce", c10d.AllreduceOptions),
    "allreduce_coalesced_": ("all_reduce", "allreduce_coalesced", c10d.AllreduceCoalescedOptions),
    "broadcast_": ("broadcast", "broadcast", c10d.BroadcastOptions),
    "allgather_": ("all_gather", "allgather", c10d.AllgatherOptions),
    "_allgather_base_": ("all_gather", "_allgather_base", c10d.AllgatherOptions),
    "allgather_coalesced_": ("all_gather", "allgather_coalesced", c10d.AllgatherOptions),
    "allgather_into_tensor_coalesced_": ("all_gather", "_allgather_base", c10d.AllgatherOptions),
    "reduce_scatter_": ("reduce_scatter", "reduce_scatter", c10d.ReduceScatterOptions),
    "_reduce_scatter_base_": ("reduce_scatter", "_reduce_scatter_base", c10d.ReduceScatterOptions),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "_reduce_scatter_base", c10d.ReduceScatterOptions),
    "reduce_": ("reduce", "reduce", c10d.ReduceOptions),
    "gather_": ("gather", "gather", c10d.GatherOptions),
    "scatter_": ("scatter", "scatter", c10d.ScatterOptions),
    "alltoall_": ("all_to_all", "alltoall", c10d.AllToAllOptions),
    "alltoall_base_": ("all_to_all", "alltoall_base", c10d.AllToAllOptions),
    "barrier": ("barrier", "barrier", c10d.BarrierOptions),
    "monitored_barrier_": ("barrier", "monitored_barrier", None),
    "send": ("send", "send", None),
    "recv_": ("recv", "recv", None),
    "recv_any_source_": ("recv", "recv_anysource", None),
}
"""The name here, the backend's method and the class of its options, by operator of c10d."""
_OF_LISTS = ("allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_")
"""Operators whose own method Python does not have."""
_OPTIONS = {
    "reduce_op": "reduceOp",
    "root_rank": "rootRank",
    "root_tensor": "rootTensor",
    "async_op": "asyncOp",
    "timeout": "timeout",
    "device_ids": "device_ids",
}
_BARRIER = "barrier"
_ROOTED = ("gather", "scatter")
_ALIGNED_BYTES = 16
"""gloo and NCCL move whole vectors of 16 bytes fast; other payloads take a slow path."""
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_TORCH, _DPBENCH = (
    os.path.join(path, "") for path in (os.path.dirname(torch.__file__), sys.modules["dpbench"].__path__[0])
)
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_PACKAGES = ("site-packages", "dist-packages")
_DISTRIBUTED = f"{_TORCH}distributed/"
_C10D = f"{_DISTRIBUTED}distributed_c10d.py"
_UTILS = f"{_DISTRIBUTED}utils.py"
_FSDP = f"{_DISTRIBUTED}fsdp/"
_HOOKS = f"{_DISTRIBUTED}algorithms/ddp_comm_hooks/"
_ENGINE = f"{_TORCH}autograd/graph.py"


def is_of_user(file: str) -> bool:
    return not file.startswith((_TORCH, _DPBENCH, _STDLIB, "<")) and not any(name in file for name in _PACKAGES)


@dataclass(eq=False)
class _Pending:
    steps: int
    issue: Issue
    storages: set[int]
    issuer: str
    work: Any = None
    is_hidden: bool = False
    ends_with_backward: bool = False


@dataclass
class _Stack:
    place: Place = field(default_factory=lambda: Place(file="?", line=0, function="a thread of torch"))
    issuer: str = "c++"
    of_objects: str = ""


class Issues(TorchDispatchMode):
    """Call `enough` after `steps` steps of this process's optimizers."""

    def __init__(self, steps: int, enough: Callable[[], object]) -> None:
        super().__init__()
        self._steps, self._enough = steps, enough
        self._setup: Counter[Issue] = Counter()
        self._taken: list[Counter[Issue]] = [Counter()]
        self._part, self._backwards, self._optimizers = Part.SETUP, 0, 0
        self._pending: list[_Pending] = []
        self._bucket, self._continuations = set[int](), 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        enter(_patched_kernels(self._issue))
        enter(_patched(c10d.Work, "wait", self._waiting))
        enter(_patched(c10d.Work, "get_future", self._with_future))
        enter(_patched(torch._C.Future, "then", self._then))
        enter(_patched(c10d.GradBucket, "buffer", self._buffer))
        enter(_patched(autograd, "_engine_run_backward", self._in_backward))
        self._stack.callback(register_module_forward_pre_hook(self._before_forward).remove)
        self._stack.callback(register_optimizer_step_pre_hook(self._before_optimizer).remove)
        self._stack.callback(register_optimizer_step_post_hook(self._after_optimizer).remove)
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._stack.close()

    def issued(self) -> RankIssues:
        self._need(list(self._pending))
        steps = tuple(_with_counts(issues) for issues in self._taken[: self.steps])
        return RankIssues(setup=_with_counts(self._setup), steps=steps)

    @property
    def steps(self) -> int:
        return len(self._taken) - 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_counted = func.namespace not in _COLLECTIVES or func._opname == "wait_tensor"
        if self._pending and is_counted and not self._continuations:
            library = _library()
            self._touch((args, kwargs), library)
            if not library and not func.is_view and not func._opname.startswith(("empty", "detach", "new_empty")):
                for pending in self._pending:
                    pending.is_hidden = True
        return func(*args, **(kwargs or {}))

    def _issue(self, kind: str, arguments: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        stack = _stack()
        tensors = [_tensors(argument) for argument in arguments] if kind != _BARRIER else []
        sizes = [sum(tensor.nbytes for tensor in group) for group in tensors if group]
        payload = [tensor for group in tensors for tensor in group]
        issue = Issue(
            part=self._part,
            kind=stack.of_objects or kind,
            size_bytes=(min if kind in _ROOTED else max)(sizes, default=0),
            dtypes=", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in payload})),
            is_unaligned=self._part is not Part.SETUP and any(tensor.nbytes % _ALIGNED_BYTES for tensor in payload),
            is_exposed=False,
            place=stack.place,
            count=1,
        )
        if not self._continuations:
            self._touch(arguments)
        pending = _Pending(self.steps, issue, set(map(_storage, payload)), stack.issuer)
        pending.ends_with_backward = stack.issuer == "c++" or (stack.issuer == "fsdp" and kind != "all_gather")
        pending.is_hidden = self._part is Part.SETUP
        self._pending.append(pending)
        pending.work = call()
        return pending.work

    def _touch(self, arguments: Any, library: str = "") -> None:
        if not self._pending:
            return
        storages = set(map(_storage, _tensors(arguments)))
        touched = [pending for pending in self._pending if storages & pending.storages]
        if library == "fsdp":
            touched = [pending for pending in touched if pending.issuer != "fsdp" or not pending.ends_with_backward]
        if any(pending.issuer == "c++" for pending in touched):
            touched = [pending for pending in self._pending if pending.issuer == "c++" or pending in touched]
        self._need(touched)

    def _need(self, needed: Iterable[_Pending]) -> None:
        for pending in needed:
            self._pending.remove(pending)
            tally = self._setup if pending.issue.part is Part.SETUP else self._taken[pending.steps]
            tally[pending.issue.model_copy(update={"is_exposed": not pending.is_hidden})] += 1

    def _waiting(self, wait: Callable[..., Any], work: Any, *args: Any) -> Any:
        self._need([pending for pending in self._pending if pending.work is work and pending.issuer != "fsdp"])
        return wait(work, *args)

    def _with_future(self, get_future: Callable[..., Any], work: Any) -> Any:
        future = get_future(work)
        if self._backwards:
            for pending in self._pending:
                if pending.work is work:
                    pending.ends_with_backward, pending.issuer = True, "c++"
                    pending.storages |= self._bucket
            # Else a thread of gloo may run the hook's continuations, in which no line and no order is known.
            future.wait()
        return future

    def _buffer(self, buffer: Callable[..., torch.Tensor], bucket: Any) -> torch.Tensor:
        tensor = buffer(bucket)
        self._bucket = {_storage(tensor)}
        return tensor

    def _then(self, then: Callable[..., Any], future: Any, callback: Callable[..., Any]) -> Any:
        return then(future, partial(self._continue, callback) if self._backwards else callback)

    def _continue(self, callback: Callable[..., Any], future: Any) -> Any:
        self._continuations += 1
        try:
            result = callback(future)
        finally:
            self._continuations -= 1
        for pending in self._pending:
            if pending.issuer == "c++":  # the reducer copies what a hook returns
                pending.storages |= set(map(_storage, _tensors(result)))
        return result

    def _in_backward(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._backwards, self._part = self._backwards + 1, Part.BACKWARD
        try:
            return run(*args, **kwargs)
        finally:
            self._backwards -= 1
            if not self._backwards:
                self._part = Part.OPTIMIZER
                self._need([pending for pending in self._pending if pending.ends_with_backward])

    def _before_forward(self, *_: object) -> None:
        if not self._backwards and not self._optimizers:
            self._part = Part.FORWARD

    def _before_optimizer(self, *_: object) -> None:
        self._optimizers, self._part = self._optimizers + 1, Part.OPTIMIZER

    def _after_optimizer(self, *_: object) -> None:
        self._optimizers -= 1
        if not self._optimizers:
            self._taken.append(Counter())
            self._part = Part.OTHER
            if self.steps == self._steps:
                self._enough()


@contextmanager
def _patched(owner: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: around(before, *args, **kwargs))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _patched_kernels(issue: Callable[..., Any]) -> Iterator[None]:
    library = Library("c10d", "IMPL")
    for name in _OPERATORS:
        library.impl(name, partial(_collective, issue, name), "CPU")
    try:
        yield
    finally:
        library._destroy()


def _collective(issue: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
    """Issue a collective by the backend's method, which releases the interpreter's lock.

    The kernel in C++ would not, and a thread of gloo may wait for that lock while it holds that of gloo's queue.
    """
    kind, method, options = _OPERATORS[name]
    schema = getattr(torch.ops.c10d, name).default._schema
    arguments = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    group = c10d.ProcessGroup.unbox(arguments.pop("process_group"))
    run = getattr(group._get_backend(torch.device("cpu")), method)
    if name in _OF_LISTS:
        run = partial(_one_by_one, run)
    work = issue(kind, args, partial(run, *_converted(kind, arguments, options)))
    result = () if work is None else (work.boxed(),)
    return (args[0], *result) if len(schema.returns) == 2 else (*result, None)[0]


def _one_by_one(method: Callable[..., Any], outputs: Any, inputs: Any, options: Any) -> Any:
    """Return the last pair's work when the others are done."""
    *first_works, last = (method(output, own_input, options) for output, own_input in zip(outputs, inputs, strict=True))
    for work in first_works:
        work.wait()
    return last


def _converted(kind: str, arguments: dict[str, Any], options: Callable[[], Any] | None) -> list[Any]:
    """A time-out of -1 ms means the backend's own."""
    if kind == _BARRIER:
        arguments.pop("tensor", None)
        if options is None:
            arguments.pop("device_ids", None)
    arguments.pop("sparse_indices", None)
    if "reduce_op" in arguments:
        if not hasattr(arguments["reduce_op"], "op"):
            raise RuntimeError(
                f"torch {torch.__version__} hides the operation of a reduction; torch 2.10 or newer is needed"
            )
        arguments["reduce_op"] = c10d.ReduceOp(c10d.ReduceOp.RedOpType(arguments["reduce_op"].op()))
    if "timeout" in arguments:
        arguments["timeout"] = timedelta(milliseconds=arguments["timeout"])
    if options is None:
        return list(arguments.values())
    filled = options()
    for name in _OPTIONS.keys() & arguments.keys():
        setattr(filled, _OPTIONS[name], arguments.pop(name))
    return [*arguments.values(), filled]


def _with_counts(issues: Counter[Issue]) -> tuple[Issue, ...]:
    return tuple(issue.model_copy(update={"count": count}) for issue, count in issues.items())


def _tensors(arguments: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tree_leaves(arguments) if isinstance(tensor, torch.Tensor)]


def _storage(tensor: Any) -> int:
    """A key of the tensor's memory; of a DTensor or an awaited tensor, of that inside."""
    for inside in ("_local_tensor", "elem"):
        tensor = getattr(tensor, inside, tensor)
    return int(tensor.untyped_storage()._cdata)


def _frames() -> Iterator[tuple[str, FrameType]]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_DPBENCH):
            yield file, frame
        frame = frame.f_back


def _library() -> str:
    """``fsdp`` or ``hook`` if one of these issued the current operator, else nothing."""
    for file, _ in _frames():
        if file.startswith(_FSDP):
            return "fsdp"
        if file.startswith(_HOOKS):
            return "hook"
        if file == _ENGINE or is_of_user(file):
            break
    return ""


def _stack() -> _Stack:
    stack = _Stack()
    for file, frame in _frames():
        name = frame.f_code.co_name
        if is_of_user(file):
            stack.place = place_of(file, frame.f_lineno, frame.f_code.co_qualname)
            break
        if file.startswith(_FSDP):
            stack.issuer = "fsdp"
        elif file.startswith(_TORCH) and stack.issuer == "c++" and file not in (_ENGINE, _UTILS):
            stack.issuer = (
                "python" if "distributed/" in file and not file.endswith("nn/parallel/distributed.py") else "c++"
            )
        if file == _C10D and "object" in name and not name.startswith("_"):
            stack.of_objects = name
    return stack
