"""Every collective that this process issues while a script runs: its part of a step, its bytes, and its line.

    script, DDP's reducer (C++), FSDP2, functional collectives
                 │
        ops of c10d, for CPU ──> this module's kernel ──> the kernel that was there ──> gloo

All ways to a process group go through these operators, in each thread. So the kernel sees every collective.

A collective is exposed if the rank computes nothing between its issue and the moment when its result is needed. The
rank needs it at `Work.wait`, or when an operator touches its tensors, whichever comes first. Two exceptions:

- DDP's reducer waits in C++ for all buckets. It needs them when an operator touches one, or at the end of the backward.
- FSDP2 issues without `async_op`, because its collectives have a stream of their own on GPUs. So `wait` does not count
  there. It needs its reductions at the end of the backward.

Views, empty tensors, and the copies that FSDP2 and DDP's hooks make are no computation here.
"""

import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, Self

import torch
from torch import autograd
from torch.distributed.distributed_c10d import Work
from torch.library import Library, get_kernel
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import dpbench
from dpbench.measure.counted.details import place_of
from dpbench.records.communication import Issue, Part, RankIssues
from dpbench.records.details import Place

_KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "broadcast_": "broadcast",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "reduce_": "reduce",
    "gather_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
}
"""The operators of c10d by what they are called here."""
_BARRIER, _ROOTED = "barrier", ("gather", "scatter")
_ALIGNED_BYTES = 16
"""gloo and NCCL move whole vectors of 16 bytes fast. A payload of another size takes a slow path."""
_COLLECTIVES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_TORCH, _DPBENCH = (
    os.path.join(path, "") for path in (os.path.dirname(torch.__file__), sys.modules["dpbench"].__path__[0])
)
_STDLIB, _PACKAGES = os.path.join(sysconfig.get_path("stdlib"), ""), ("site-packages", "dist-packages")
_DISTRIBUTED = f"{_TORCH}distributed/"
_C10D, _UTILS = f"{_DISTRIBUTED}distributed_c10d.py", f"{_DISTRIBUTED}utils.py"
_FSDP, _HOOKS = f"{_DISTRIBUTED}fsdp/", f"{_DISTRIBUTED}algorithms/ddp_comm_hooks/"
_ENGINE = f"{_TORCH}autograd/graph.py"


def is_of_user(file: str) -> bool:
    """Whether a frame's file is neither torch's, nor dpbench's, nor Python's own."""
    if file.startswith((_TORCH, _DPBENCH, "<")):
        return False
    return not file.startswith(_STDLIB) or any(name in file for name in _PACKAGES)


@dataclass(eq=False)
class _Pending:
    """A collective whose result is not needed yet. `storages` are those of its tensors."""

    steps: int
    issue: Issue
    storages: set[int]
    issuer: str
    work: Any = None
    is_hidden: bool = False
    ends_with_backward: bool = False


@dataclass
class _Stack:
    """Who called: the user's line, who issued on its behalf, and the object collective that it is part of."""

    place: Place = field(default_factory=lambda: Place(file="?", line=0, function="a thread of torch"))
    issuer: str = "c++"
    of_objects: str = ""


class Issues(TorchDispatchMode):
    """Within the block, keep what this process issues. After `steps` steps of its optimizers, call `enough`."""

    def __init__(self, steps: int, enough: Callable[[], object]) -> None:
        super().__init__()
        self._steps, self._enough = steps, enough
        self._setup: Counter[Issue] = Counter()
        self._taken: list[Counter[Issue]] = [Counter()]
        self._part, self._backwards, self._optimizers = Part.SETUP, 0, 0
        self._pending: list[_Pending] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        enter(_patched_kernels(self._issue, self._touch))
        enter(_patched(Work, "wait", self._waiting))
        enter(_patched(Work, "get_future", self._with_future))
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
        """Return what was issued until now."""
        self._need(list(self._pending))
        *steps, after = (_with_counts(found) for found in self._taken)
        return RankIssues(setup=_with_counts(self._setup), steps=tuple(steps), after=after)

    @property
    def steps(self) -> int:
        """The number of steps that are over."""
        return len(self._taken) - 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._pending and func.namespace not in _COLLECTIVES:
            library = _library()
            self._touch((args, kwargs), library)
            if not library and not func.is_view and not func._opname.startswith(("empty", "detach", "new_empty")):
                for each in self._pending:
                    each.is_hidden = True
        return func(*args, **(kwargs or {}))

    def _issue(self, kind: str, arguments: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        stack = _stack()
        tensors = [_tensors(argument) for argument in arguments] if kind != _BARRIER else []
        sizes = [sum(tensor.nbytes for tensor in each) for each in tensors if each]
        payload = [tensor for each in tensors for tensor in each]
        issue = Issue(
            part=self._part,
            kind=stack.of_objects or kind,
            size_bytes=(min if kind in _ROOTED else max)(sizes, default=0),
            dtypes=", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in payload})),
            is_unaligned=any(tensor.nbytes % _ALIGNED_BYTES for tensor in payload),
            is_exposed=False,
            place=stack.place,
            count=1,
        )
        self._touch(arguments)
        pending = _Pending(self.steps, issue, set(map(_storage, payload)), stack.issuer)
        pending.ends_with_backward = stack.issuer == "c++" or (stack.issuer == "fsdp" and kind != "all_gather")
        self._pending.append(pending)
        result = call()
        works = [
            each
            for each in (result if isinstance(result, tuple) else (result,))
            if isinstance(each, torch.ScriptObject)
        ]
        pending.work = Work.unbox(works[-1]) if works else None
        return result

    def _touch(self, arguments: Any, library: str = "") -> None:
        """Need the collectives whose tensors are among these arguments."""
        if not self._pending:
            return
        storages = set(map(_storage, _tensors(arguments)))
        touched = [each for each in self._pending if storages & each.storages]
        if library == "fsdp":
            touched = [each for each in touched if each.issuer != "fsdp" or not each.ends_with_backward]
        if any(each.issuer == "c++" for each in touched):
            touched = [each for each in self._pending if each.issuer == "c++" or each in touched]
        self._need(touched)

    def _need(self, needed: Iterable[_Pending]) -> None:
        for each in needed:
            self._pending.remove(each)
            found = self._setup if each.issue.part is Part.SETUP else self._taken[each.steps]
            found[each.issue.model_copy(update={"is_exposed": not each.is_hidden})] += 1

    def _waiting(self, wait: Callable[..., Any], work: Any, *args: Any) -> Any:
        self._need([each for each in self._pending if each.work is work and each.issuer != "fsdp"])
        return wait(work, *args)

    def _with_future(self, get_future: Callable[..., Any], work: Any) -> Any:
        for each in self._pending:
            each.ends_with_backward |= each.work is work and self._backwards > 0
        return get_future(work)

    def _in_backward(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._backwards, self._part = self._backwards + 1, Part.BACKWARD
        try:
            return run(*args, **kwargs)
        finally:
            self._backwards -= 1
            if not self._backwards:
                self._part = Part.OPTIMIZER
                self._need([each for each in self._pending if each.ends_with_backward])

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
    """Within the block, calls of this function are calls of `around`, with the function as its first argument."""
    before = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: around(before, *args, **kwargs))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _patched_kernels(issue: Callable[..., Any], touch: Callable[[Any], object]) -> Iterator[None]:
    """Within the block, each collective on the CPU calls `issue`, and each functional wait calls `touch`."""
    libraries = [Library("c10d", "IMPL"), Library("_c10d_functional", "IMPL")]

    def collective(kernel: Any, kind: str, keys: Any, *args: Any) -> Any:
        return issue(kind, args, lambda: kernel.call_boxed(keys, *args))

    def wait(kernel: Any, keys: Any, tensor: Any) -> Any:
        touch(tensor)
        return kernel.call_boxed(keys, tensor)

    for name, kind in _KINDS.items():
        run = partial(collective, get_kernel(f"c10d::{name}", "CPU"), kind)
        libraries[0].impl(name, run, "CPU", with_keyset=True)
    run = partial(wait, get_kernel("_c10d_functional::wait_tensor", "CPU"))
    libraries[1].impl("wait_tensor", run, "CPU", with_keyset=True)
    try:
        yield
    finally:
        for library in libraries:
            library._destroy()


def _with_counts(found: Counter[Issue]) -> tuple[Issue, ...]:
    return tuple(issue.model_copy(update={"count": count}) for issue, count in found.items())


def _tensors(arguments: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tree_leaves(arguments) if isinstance(tensor, torch.Tensor)]


def _storage(tensor: Any) -> int:
    """Return what tensors of the same memory share. The memory of a DTensor or of an awaited tensor is that inside."""
    for inside in ("_local_tensor", "elem"):
        tensor = getattr(tensor, inside, tensor)
    return int(tensor.untyped_storage()._cdata)


def _frames() -> Iterator[tuple[str, FrameType]]:
    """Yield the frames of this thread, the innermost first, without those of dpbench."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_DPBENCH):
            yield file, frame
        frame = frame.f_back


def _library() -> str:
    """Return ``fsdp`` or ``hook`` if the current operator is one of FSDP2 or of a hook of DDP, else nothing."""
    for file, _ in _frames():
        if file.startswith(_FSDP):
            return "fsdp"
        if file.startswith(_HOOKS):
            return "hook"
        if file == _ENGINE or is_of_user(file):
            break
    return ""


def _stack() -> _Stack:
    found = _Stack()
    for file, frame in _frames():
        name = frame.f_code.co_name
        if is_of_user(file):
            found.place = place_of(file, frame.f_lineno, frame.f_code.co_qualname)
            break
        if file.startswith(_FSDP):
            found.issuer = "fsdp"
        elif file.startswith(_TORCH) and found.issuer == "c++" and file not in (_ENGINE, _UTILS):
            found.issuer = (
                "python" if "distributed/" in file and not file.endswith("nn/parallel/distributed.py") else "c++"
            )
        if file == _C10D and "object" in name and not name.startswith("_"):
            found.of_objects = name
    return found
