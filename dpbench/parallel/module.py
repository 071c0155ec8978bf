"""`DataParallel`: run a module on several devices at once, on one chunk of the batch each.

With `with_loss` a replica's outputs stay on its lane. Those of a language model are large: the gathered logits of GPT-2
are two thirds of what a step sends (huggingface/transformers#9371, two TITAN RTX: 823 of 2,120 MB, and 302 MB of
caches)::

    DataParallel(model)                    lane i: outputs  ── sent ──>  base: loss over the batch
    DataParallel(with_loss(model, loss))   lane i: outputs, loss  ── one number for each item ──>  base: mean
"""

from abc import ABCMeta
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._C._profiler import _RecordFunctionFast  # `record_function`, but without a profiler 0.2 instead of 5 us
from torch.nn.parallel.data_parallel import _check_balance
from torch.utils._pytree import tree_map

from dpbench.parallel.accumulate import Accumulation, Context
from dpbench.parallel.apply import apply_with, parallel_apply
from dpbench.parallel.compiled import IN_PLACE, compiled_under, exchange_callback, never_compile, without_base
from dpbench.parallel.devices import (
    DeviceLike,
    as_stock_id,
    check_exist,
    check_not_capturing,
    resolve_device,
    resolve_device_ids,
)
from dpbench.parallel.dispatch import Dispatcher
from dpbench.parallel.lanes import Lane
from dpbench.parallel.module_tree import check_device
from dpbench.parallel.policy import DEFAULT_POLICY, Dispatch, Policy, Shares, check_policy, shares_of_lanes
from dpbench.parallel.replicas import ReplicaPool, replicate
from dpbench.parallel.scatter_gather import Target, gather, gather_to, resolve_target, scatter_kwargs, scatter_to

T = TypeVar("T", bound=nn.Module)

_RUNTIME = ("_replicas", "_dispatcher", "_in_sequence", "_ready_for", "_shares", "_accumulation")
"""Attributes with memory and threads; a copy or an unpickled wrapper makes new ones."""
_IN_NO_GRAPH = "DataParallel is in no graph itself; its replicas are compiled"


class _EqualToStock(ABCMeta):
    """Makes ``type(model) in (nn.DataParallel, ...)`` hold, by which many training scripts find the module.

    It derives from ABCMeta, so that a subclass of the wrapper may be abstract too.
    """

    def __eq__(cls, other: object) -> bool:
        return cls is other or (cls is DataParallel and other is nn.DataParallel)

    __hash__ = type.__hash__


class DataParallel(nn.DataParallel[T], metaclass=_EqualToStock):
    """Drop-in for ``torch.nn.DataParallel``; DIFFERENCES.md lists what differs.

    `device_ids` may repeat a device and may name any type. Without it the wrapper uses all accelerators of the default
    type. If there is none, forward calls the module. The module's parameters and buffers must be on ``device_ids[0]``
    at forward.
    """

    def __init__(
        self,
        module: T,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        policy: Policy = DEFAULT_POLICY,
    ) -> None:
        nn.Module.__init__(self)
        torch._C._log_api_usage_once("torch.nn.parallel.DataParallel")
        check_policy(policy)
        self.module = module
        devices = resolve_device_ids(device_ids)
        self.device_ids = [as_stock_id(device) for device in devices]
        self.policy = policy
        self._accumulation = Accumulation()
        if not devices:
            return
        self.dim = dim
        if output_device is None:
            self.output_device = self.device_ids[0]
        else:
            resolved = resolve_device(output_device)
            check_exist("output_device", [resolved])
            self.output_device = -1 if output_device == -1 else as_stock_id(resolved)
        self._start_runtime()
        if devices[0].type == "cuda":
            _check_balance([device.index for device in devices])
        if len(devices) == 1:
            self.module.to(devices[0])

    def _start_runtime(self) -> None:
        devices = [resolve_device(device) for device in self.device_ids]
        self.src_device_obj = devices[0]
        self._replicas = ReplicaPool(devices, self.policy, self._accumulation)
        self._dispatcher = Dispatcher(self.policy)
        # For compiled replicas, and while graphs warm up, where trials would choose what no launch of a graph uses.
        self._in_sequence = Dispatcher(replace(self.policy, dispatch=Dispatch.SEQUENCE))
        self._shares = shares_of_lanes(self.policy.shares, len(devices))
        # Users assign to both attributes, as they do in stock; the next forward then begins anew.
        self._ready_for = [*self.device_ids], self.policy

    def _pool(self) -> ReplicaPool:
        if self._ready_for != (self.device_ids, self.policy):
            self._start_runtime()
        return self._replicas

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            torch._dynamo.graph_break(msg=_IN_NO_GRAPH)
        callback = exchange_callback(None)  # else all Python code of the wrapper would be compiled, too
        try:
            if self.device_ids:
                self._replicas.streams.here.lanes = ()  # first of all: those of an earlier forward must not be restored
                self._replicas.unsettled.callback = callback
            with _RecordFunctionFast("DataParallel.forward"):
                module = self.module
                alone: Any = module if callback is None else partial(compiled_under(callback), module)
                if not self.device_ids:
                    return alone(*inputs, **kwargs)
                check_not_capturing(self.src_device_obj)
                pool = self._pool()
                pool.sets.check_device(module)
                chunks, kwarg_chunks = self.scatter(inputs, kwargs, self.device_ids)
                if not chunks and not kwarg_chunks:
                    chunks, kwarg_chunks = ((),), ({},)  # a forward without arguments runs on the first device only
                if len(self.device_ids) == 1:
                    return alone(*chunks[0], **kwarg_chunks[0])
                outputs = self._run_graphs(module, chunks, kwarg_chunks) if self.policy.graphs else None
                if outputs is None:
                    outputs = pool.sets.lend(self._replicate_and_apply, module, chunks, kwarg_chunks)
                    self._dispatcher.has_run = True
                return self.gather(outputs, self.output_device)
        except Exception:
            raise
        except BaseException:  # an interrupt, which may have come anywhere
            if self.device_ids:
                self._replicas.recover()
            raise
        finally:
            if self.device_ids:
                self._replicas.settle()  # a subclass may have its own `parallel_apply` and `gather`
            exchange_callback(callback)

    def _run_graphs(self, module: T, chunks: Sequence[Any], kwarg_chunks: Any) -> list[Any] | None:
        report = self._replicas.graph_report
        report.is_warming_up = False
        if self.src_device_obj.type != "cuda":
            report.note_eager(f"graphs need CUDA devices, not {self.src_device_obj.type}")
            return None
        # A subclass or the user may have replaced what a graph does instead, or what copies its static outputs.
        for name in ("replicate", "parallel_apply", "gather"):
            if getattr(getattr(self, name), "__func__", None) is not getattr(DataParallel, name):
                report.note_eager(f"the wrapper has a {name} of its own")
                return None
        run = partial(self._replicas.run_graphs, module, list(zip(chunks, kwarg_chunks, strict=True)))
        outputs, check = run(), report.take_check()
        if outputs is None or check is None:
            return outputs

        def eagerly() -> Any:
            own_chunks = tree_map(_cloned, (chunks, kwarg_chunks))  # a forward may write to its inputs
            return self.gather(
                self._replicas.sets.lend(self._replicate_and_apply, module, *own_chunks), self.output_device
            )

        return check.again_if_equal(self.gather(outputs, self.output_device), eagerly, run)

    def graph_report(self) -> list[str]:
        """With `Policy.graphs`: how many forwards ran as graphs, and why the others did not, a line each."""
        return self._replicas.graph_report.lines() if self.device_ids else []

    def compile_report(self) -> list[str]:
        """Of compiled replicas: how many forwards ran and compiled, and what stays eager and why, a line each."""
        return self._replicas.compile_report.lines() if self.device_ids else []

    def _replicate_and_apply(self, module: T, chunks: Sequence[Any], kwarg_chunks: Any) -> list[Any]:
        """The replicas' outputs, as the borrower of `ReplicaSets.lend`: no replica outlives it."""
        replicas = self.replicate(module, self.device_ids[: len(chunks)])
        return self.parallel_apply(replicas, chunks, kwarg_chunks)

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[Any]:
        if module is self.module and list(device_ids) == self.device_ids[: len(device_ids)]:
            return self._pool().replicas(module, len(device_ids))
        return replicate(module, device_ids, policy=self.policy)

    def scatter(self, inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, device_ids: Sequence[DeviceLike]) -> Any:
        if list(device_ids) != self.device_ids:
            return scatter_kwargs(inputs, kwargs, device_ids, self.dim, self.policy)
        return scatter_to(self._lanes(), inputs, kwargs or {}, self.dim, self._shares)

    def parallel_apply(self, replicas: Sequence[nn.Module], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        try:
            pool = self._pool()
            devices = pool.devices[: len(replicas)]
            if (tree := pool.unsettled.compiled_tree) is not None:
                inputs, kwargs = tree_map(without_base, (inputs, kwargs))
                return pool.compile_report.watch(
                    partial(apply_with, self._in_sequence, replicas, inputs, kwargs, devices), tree
                )
            dispatcher = self._in_sequence if pool.graph_report.is_warming_up else self._dispatcher
            return apply_with(dispatcher, replicas, inputs, kwargs, devices)
        finally:
            self._replicas.settle()  # a caller may use `replicate` and this method alone

    def gather(self, outputs: Any, output_device: DeviceLike) -> Any:
        self._replicas.settle()  # a subclass may have its own `forward` and `parallel_apply`
        device = resolve_target(output_device)
        lanes = self._lanes() if device == self.src_device_obj else []
        small_bytes = lanes[0].small_bytes if lanes else 0
        target = Target(device, tuple([lane.near for lane in lanes]), self.policy.host_staged, small_bytes)
        return gather_to(target, outputs, self.dim)

    def _lanes(self) -> list[Lane]:
        return self._pool().streams.lanes(len(self.device_ids), self.policy.overlap_copies)

    @property
    def shares(self) -> Shares | None:
        """The lanes' shares, for `chunk_weights`; None for equal chunks."""
        return self.policy.shares

    @property
    def trials_left(self) -> int:
        """How many further forwards are trials, at least: 0 once the wrapper is settled.

        Each mode (`training`, grad mode) and each number of lanes has its own trials. This counts those of the present
        mode and the last forward's lanes. Before the first forward it is at least 1. Measure when this is 0.
        """
        if len(self.device_ids) < 2:
            return 0
        captured = self._pool().graph_report.trials_left
        if captured is not None:
            return captured
        if not self._replicas.compile_report.is_settled:
            return 1
        if not self._dispatcher.has_run:
            return 1
        return self._dispatcher.trials_left(torch.is_grad_enabled(), self.module.training)

    def accumulate(self) -> AbstractContextManager[None]:
        """Keep the gradients of the forwards inside on the lanes. The next backward from outside reduces them once.

        ::

            for batch in batches[:-1]:
                with model.accumulate():
                    loss(model(batch)).backward()
            loss(model(batches[-1])).backward()  # `.grad` gets the sum of all steps

        Until then ``.grad`` gets only what cannot be kept: `accumulate.py` lists it. If all lanes are on one device,
        ``.grad`` gets every step.

        The first forward inside sends the weights. A later one sends them if they have changed, as
        `Policy.skip_unchanged` describes. Every forward sends the buffers. A forward inside counts on any thread; its
        backward may run outside. Contexts may be nested or follow one another.

        If the optimizer steps earlier, what is kept joins a later step. `zero_grad` of the wrapper drops it;
        `zero_grad` of the module or the optimizer does not. An exception that leaves the context drops all that is
        kept, and so does a last backward that fails. Call `zero_grad` then, since ``.grad`` may hold a part. Copies
        and pickles of the wrapper hold nothing.
        """
        return Context(self._accumulation)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop what `accumulate` keeps, and zero the gradients as ``torch.nn.Module.zero_grad`` does."""
        self._accumulation.sums.drop()
        super().zero_grad(set_to_none)

    def mark_dirty(self) -> None:
        """Report a write that no version counter shows, as by ``.data``, to `skip_unchanged` and an accumulation."""
        if self.device_ids:
            self._replicas.mark_dirty()

    def __getstate__(self) -> dict[str, Any]:
        # Without compiled code, as any module.
        return {name: value for name, value in self.__dict__.items() if name not in (*_RUNTIME, IN_PLACE)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._accumulation = Accumulation()
        if self.device_ids:
            self._start_runtime()


never_compile(DataParallel.forward)


def data_parallel(  # noqa: PLR0917 - the stock signature
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: Any | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Any:
    """Evaluate ``module(*inputs, **module_kwargs)`` over `device_ids` once: the functional form of `DataParallel`."""
    check_policy(policy)
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    devices = resolve_device_ids(device_ids)
    if not devices:
        raise RuntimeError("no available devices were found")
    check_device([*module.parameters(), *module.buffers()], devices[0])
    chunks, kwarg_chunks = scatter_kwargs(inputs, module_kwargs, devices, dim, policy)
    if not chunks and not kwarg_chunks:
        chunks, kwarg_chunks = ((),), ({},)
    if len(devices) == 1:
        return module(*chunks[0], **kwarg_chunks[0])
    used = devices[: len(chunks)]
    outputs = parallel_apply(replicate(module, used, policy=policy), chunks, kwarg_chunks, used, policy)
    return gather(outputs, devices[0] if output_device is None else output_device, dim, policy)


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


Loss = Callable[[Any, Tensor], Tensor]


class ModelWithLoss(nn.Module):
    """The parameters are those of `module`, with the prefix ``module.``."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.module = module
        self.loss = loss

    def forward(self, *inputs: Any, **kwargs: Any) -> Tensor:
        """Return the loss of each item. The last positional argument is the target, with the batch as dimension 0."""
        if not inputs or not isinstance(inputs[-1], Tensor) or inputs[-1].dim() == 0:
            raise ValueError(
                "with_loss: the last positional argument must be the target, a tensor with a batch dimension"
            )
        *args, target = inputs
        value = self.loss(self.module(*args, **kwargs), target)
        count = len(target)
        if not isinstance(value, Tensor) or value.shape not in ((), (count,)) or not value.is_floating_point():
            raise ValueError(
                f"with_loss: loss(output, target) returned {_kind(value)}; a floating scalar, the mean over the items, "
                f"or a floating vector with an entry for each of the {count} items is allowed"
            )
        return value.expand(count)


def with_loss(module: nn.Module, loss: Loss) -> ModelWithLoss:
    """Return a module that takes the inputs and the target, and returns the loss of each item.

    `loss(output, target)` returns the mean over the items as a scalar, or a vector with the loss of each item. A
    scalar is repeated for each item of its chunk. So the mean of what the wrapper returns equals the mean over the
    batch, also if chunks are uneven::

        model = DataParallel(with_loss(net, nn.functional.cross_entropy))
        loss = model(images, labels).mean()
        loss.backward()

    For the outputs, call ``net``. A loss that normalises by a count in the whole batch is no mean over items, so it has
    another value than without the wrapper. Calling the module raises ValueError if the loss is neither a scalar nor
    such a vector.
    """
    return ModelWithLoss(module, loss)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and {value.dtype}"
    return f"a {type(value).__name__}"
