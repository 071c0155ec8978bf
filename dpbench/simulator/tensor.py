"""A tensor on a simulated device."""

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dpbench.simulator.current import GradientHandoff
from dpbench.simulator.memory.allocator import MemoryBlock
from dpbench.simulator.memory.regions import Region, region
from dpbench.simulator.memory.storages import SimStorage
from dpbench.simulator.unsupported import UnsupportedError

Bits = tuple[bool, bool]
"""Whether a tensor is lazily conjugated, and whether it is lazily negated."""
NO_BITS: Bits = (False, False)
_KEYS = {
    NO_BITS: None,
    (True, False): torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate),
    (False, True): torch._C.DispatchKeySet(torch._C.DispatchKey.Negative),
    (True, True): torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate).add(torch._C.DispatchKey.Negative),
}


class SimTensor(Tensor):
    """A wrapper with a simulated device around the CPU tensor `raw`, or one on ``meta`` without numbers.

    `storages` holds one storage, or two for the indices and values of a sparse tensor. `made_on` is the stream of the
    operator that made the tensor, until autograd.py assigns it to the graph node. `raw` is never lazily conjugated or
    negated: torch resolves the wrapper's bits.
    """

    __slots__ = ["_block", "_regions", "bits", "handoff", "made_on", "raw", "storages"]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    dispatcher: ClassVar[Callable[[Any, Any, Any], Any]]
    raw: Tensor
    storages: tuple[SimStorage, ...]
    bits: Bits
    made_on: int | None
    handoff: GradientHandoff | None
    _regions: list[Region] | None
    _block: MemoryBlock | None

    @staticmethod
    def __new__(
        cls, raw: Tensor, device: torch.device, storages: tuple[SimStorage, ...], *, made_on: int, bits: Bits = NO_BITS
    ) -> "SimTensor":
        is_strided = raw.layout == torch.strided
        self: SimTensor = Tensor._make_wrapper_subclass(
            cls,
            raw.size(),
            strides=raw.stride() if is_strided else None,
            storage_offset=raw.storage_offset() if is_strided else None,
            dtype=raw.dtype,
            layout=raw.layout,
            device=device,
            _extra_dispatch_keys=_KEYS[bits],
        )
        self.raw, self.storages, self.bits, self.made_on = raw, storages, bits, made_on
        self.handoff, self._regions = None, None
        return self

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return cls.dispatcher(func, args, kwargs or {})

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def accesses(self) -> list[tuple[SimStorage, Region]]:
        if self._regions is None or self._block is not self.storages[0].block:  # another view may have grown
            self._block = self.storages[0].block
            self._regions = [
                _region(part, storage) for part, storage in zip(parts(self.raw), self.storages, strict=True)
            ]
        return list(zip(self.storages, self._regions, strict=True))

    def adopt(self, other: "SimTensor") -> None:
        """As ``self.data = other`` does."""
        Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self.raw, self.storages, self._regions = other.raw, other.storages, None

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, other: Tensor) -> None:
        if not isinstance(other, SimTensor):
            raise TypeError(f"cannot set the data of a tensor on {self.device} to one on {other.device}")
        self.adopt(other)

    def data_ptr(self) -> int:
        """Torch's own returns 0 for a wrapper."""
        storage = self.storages[0]
        return storage.address + int(self.raw.storage_offset()) * self.raw.itemsize if storage.block else 0

    def as_subclass(self, cls: Any) -> Any:
        """A view whose class derives from `cls` and from this one."""
        view = torch.ops.aten.alias.default(self)
        view.__class__ = cls if issubclass(cls, SimTensor) else _mixed(cls)
        return view

    def tolist(self) -> Any:
        if self.raw.is_meta:
            raise NotImplementedError("tolist() needs numbers; simulate(numbers=True) has them")
        return self.cpu().tolist()

    def __format__(self, format_spec: str) -> str:
        return self.item().__format__(format_spec) if self.dim() == 0 and format_spec else str(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("only tensors created explicitly by the user support the deepcopy protocol")
        copy: Tensor = self.detach().clone()
        if isinstance(self, nn.Parameter):
            copy = nn.Parameter(copy, self.requires_grad)
        memo[id(self)] = copy.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copy.grad = self.grad.__deepcopy__(memo)
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.raw.is_meta:
            raise NotImplementedError("pickling a tensor needs numbers; simulate(numbers=True) has them")
        is_parameter = isinstance(self, nn.Parameter)
        return rebuild, (self.detach().cpu(), str(self.device), self.requires_grad, is_parameter)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        grad = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn else ", requires_grad=True" * self.requires_grad
        values = f"tensor(..., size={tuple(self.size())}, " if self.raw.is_meta else f"{str(self.raw)[:-1]}, "
        return f"{values}device='{self.device}'{grad})"


class _KeepsSubclass(SimTensor):
    """The first base is the class in the user's program, and operators return it, as torch's do."""

    @classmethod
    def __torch_function__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kinds = [kind.__bases__[0] if issubclass(kind, _KeepsSubclass) else kind for kind in types]
        return Tensor.__torch_function__.__func__(cls.__bases__[0], func, kinds, args, kwargs)  # type: ignore[attr-defined]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return cls.dispatcher(func, args, kwargs or {})


@cache
def _mixed(kind: type[Tensor]) -> type[Tensor]:
    return type(kind.__name__, (kind, _KeepsSubclass), {"__module__": kind.__module__})


def rebuild(value: Tensor, device: str, requires_grad: bool, is_parameter: bool) -> Tensor:
    tensor = value.to(device).requires_grad_(requires_grad)
    return nn.Parameter(tensor.detach(), requires_grad) if is_parameter else tensor


def bits_of(tensor: Tensor) -> Bits:
    return tensor.is_conj(), tensor.is_neg()


def toggled(raw: Tensor, bits: Bits) -> Tensor:
    """A view with these bits flipped."""
    conjugated = torch._conj(raw) if bits[0] else raw
    return conjugated._neg_view() if bits[1] else conjugated


def parts(raw: Tensor) -> tuple[Tensor, ...]:
    """The strided tensors that hold the bytes of `raw`; raise NotImplementedError for another layout."""
    if raw.layout == torch.strided:
        return (raw,)
    if raw.layout == torch.sparse_coo:
        return raw._indices(), raw._values()
    raise UnsupportedError(
        f"the simulator does not support tensors of layout {raw.layout}; strided and sparse_coo are allowed"
    )


def _region(raw: Tensor, storage: SimStorage) -> Region:
    size = raw.itemsize
    start = storage.address + int(raw.storage_offset()) * size
    if raw.is_contiguous():
        return Region(start, start + raw.numel() * size)
    return region(start, tuple(raw.size()), raw.stride(), size)
