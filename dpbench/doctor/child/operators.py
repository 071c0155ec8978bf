"""Times of operators of each kind on one device, for a machine file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dpbench.doctor.child.timing import Bench, repeated
from dpbench.doctor.measured import TimedOperator
from dpbench.projection.described.machine import Kind

_LARGE_ELEMENTS = 64 << 20
_SLOW_EDGE = 2048
"""A device whose large product is smaller than this is so slow that all shapes are an eighth."""


@dataclass(frozen=True)
class ShapedOperator:
    """An operator to be timed: `make` allocates its tensors and returns the call, and the bytes it reads and writes."""

    kind: Kind
    shape: str
    make: Callable[[], tuple[Callable[[], object], int]]
    flops: float = 0.0
    number_format: str = "float32"
    is_large: bool = False
    calls: int = 10


def measure(operator: ShapedOperator, bench: Bench) -> TimedOperator:
    """Return the times of an operator on the bench's first device. RuntimeError if the device refuses it."""
    precision = "high" if operator.number_format == "tf32" and operator.kind is Kind.MATMUL else "highest"
    torch.set_float32_matmul_precision(precision)
    try:
        work, moved = operator.make()
        seconds = repeated(bench.on_device(bench.devices[0], work, operator.calls))
    finally:
        torch.set_float32_matmul_precision("highest")
    return TimedOperator(
        kind=operator.kind,
        shape=operator.shape,
        number_format=operator.number_format,
        flops=operator.flops,
        bytes=moved,
        is_large=operator.is_large,
        seconds=seconds,
    )


def operators(bench: Bench, *, has_tf32: bool) -> Iterator[ShapedOperator]:
    """Yield the operators to be timed."""
    device, edge = bench.devices[0], bench.edge
    shrink = 1 if edge >= _SLOW_EDGE else 8
    for number_format in ("float32", "tf32") if has_tf32 else ("float32",):
        yield _matmul(device, edge, edge, edge, number_format)
    for rows, inner, columns in ((512, 1024, 1024), (2048, 1024, 4096), (4096, 4096, 1024)):
        yield _matmul(device, rows // shrink, inner // shrink, columns // shrink)
    yield _batched(device, 64, 512 // shrink, 64, 512 // shrink)
    yield _batched(device, 64, 512 // shrink, 512 // shrink, 64)
    for channels, size in ((64, 56), (256, 14), (512, 7)):
        yield _convolution(device, channels // shrink, size, "tf32" if has_tf32 else "float32")
    yield from _moving(device, _LARGE_ELEMENTS // shrink**2, shrink)


def _ones(device: torch.device, *shape: int) -> Tensor:
    return torch.ones(shape, device=device)


def _size(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _matmul(
    device: torch.device, rows: int, inner: int, columns: int, number_format: str = "float32"
) -> ShapedOperator:
    def make() -> tuple[Callable[[], object], int]:
        a, b, out = _ones(device, rows, inner), _ones(device, inner, columns), _ones(device, rows, columns)
        return lambda: torch.mm(a, b, out=out), _size(a, b, out)

    is_large = rows == inner == columns
    return ShapedOperator(
        Kind.MATMUL,
        f"{rows} x {inner} x {columns} in {number_format}",
        make,
        flops=2 * rows * inner * columns,
        number_format=number_format,
        is_large=is_large,
        calls=1 if is_large else 10,
    )


def _batched(device: torch.device, count: int, rows: int, inner: int, columns: int) -> ShapedOperator:
    def make() -> tuple[Callable[[], object], int]:
        a, b = _ones(device, count, rows, inner), _ones(device, count, inner, columns)
        out = _ones(device, count, rows, columns)
        return lambda: torch.bmm(a, b, out=out), _size(a, b, out)

    flops = 2 * count * rows * inner * columns
    return ShapedOperator(Kind.BATCHED_MATMUL, f"{count} of {rows} x {inner} x {columns}", make, flops=flops)


def _convolution(device: torch.device, channels: int, size: int, number_format: str) -> ShapedOperator:
    images, edge = 32, 3

    def make() -> tuple[Callable[[], object], int]:
        x, weight = _ones(device, images, channels, size, size), _ones(device, channels, channels, edge, edge)
        return lambda: torch.conv2d(x, weight, padding=1), _size(x, weight, x)

    return ShapedOperator(
        Kind.CONVOLUTION,
        f"{images} x {channels} x {size} x {size} by 3 x 3 in {number_format}",
        make,
        flops=2 * images * size**2 * channels**2 * edge**2,
        number_format=number_format,
    )


def _moving(device: torch.device, large: int, shrink: int) -> Iterator[ShapedOperator]:
    """Yield the operators that cost their bytes."""
    columns, rows = 1024, 8192 // shrink

    def on(
        count: int, call: Callable[[Tensor, Tensor], object], passes: int
    ) -> Callable[[], tuple[Callable[[], object], int]]:
        def make() -> tuple[Callable[[], object], int]:
            x, out = _ones(device, count), _ones(device, count)
            return lambda: call(x, out), passes * _size(x)

        return make

    def table(call: Callable[[Tensor], object], passes: int) -> Callable[[], tuple[Callable[[], object], int]]:
        def make() -> tuple[Callable[[], object], int]:
            x = _ones(device, rows, columns)
            return lambda: call(x), passes * _size(x)

        return make

    def rows_of_a_table() -> tuple[Callable[[], object], int]:
        weight, index = _ones(device, 4 * rows, columns), torch.arange(rows, device=device)
        return lambda: functional.embedding(index, weight), 2 * _size(weight) // 4 + _size(index)

    def images() -> tuple[Callable[[], object], int]:
        x = _ones(device, 32, 64 // shrink, 56, 56)
        return lambda: functional.batch_norm(x, None, None, training=True), 2 * _size(x)

    mib = f"{4 * large >> 20} MiB"
    yield ShapedOperator(Kind.MOVE, f"a copy of {mib}", on(large, lambda x, out: out.copy_(x), 2), is_large=True)
    add = on(large, lambda x, out: torch.add(x, x, out=out), 2)
    yield ShapedOperator(Kind.ELEMENTWISE, f"an add of {mib}", add, is_large=True)
    yield ShapedOperator(Kind.ELEMENTWISE, "relu of a table", table(torch.relu, 2))
    yield ShapedOperator(Kind.MOVE, "cat of two tables", table(lambda x: torch.cat([x, x]), 4))
    yield ShapedOperator(Kind.NORM, "layer norm of a table", table(lambda x: functional.layer_norm(x, (columns,)), 2))
    yield ShapedOperator(Kind.NORM, "batch norm of images", images)
    yield ShapedOperator(Kind.SOFTMAX, "softmax of a table", table(lambda x: torch.softmax(x, -1), 2))
    yield ShapedOperator(Kind.REDUCTION, "sum of rows", table(lambda x: x.sum(0), 1))
    yield ShapedOperator(Kind.REDUCTION, f"a sum of {mib}", on(large, lambda x, _: x.sum(), 1))
    yield ShapedOperator(Kind.INDEX, "an embedding", rows_of_a_table)
