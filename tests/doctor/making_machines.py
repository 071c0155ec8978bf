"""Measurements of machines that do not exist."""

from itertools import permutations

from dpbench.doctor.measured import Collectives, HostCopies, Measurements, PairCopies, Slope, TimedOperator, Together
from dpbench.projection.described.machine import HostCost, Kind

SIZE = 64 * 2**20
EACH = tuple(0.9 + 0.01 * i for i in range(21))  # 10 %, 50 % and 90 % of it are 0.92, 1.0 and 1.08
CALLS = (
    *("view", "copy", "event_record", "stream_wait", "stream_switch", "stream_lookup", "handle_lookup"),
    *("record_stream", "host_wait", "thread_start", "lock_handover"),
)


def series(mid):
    return tuple(mid * each for each in EACH)


def products():
    yield TimedOperator(kind=Kind.MATMUL, shape="large", flops=1e12, bytes=1e6, is_large=True, seconds=series(0.1))
    tf32 = {"number_format": "tf32", "is_large": True}
    yield TimedOperator(kind=Kind.MATMUL, shape="large, tf32", flops=1e12, bytes=1e6, seconds=series(0.02), **tf32)
    # 0.2 s of products at half of 10 TFLOP/s, 1 ms of bytes at 500 GB/s, 2 us of a gap
    half = 0.2 + 0.5e9 / 500e9 + 2e-6
    yield TimedOperator(kind=Kind.BATCHED_MATMUL, shape="batch", flops=1e12, bytes=0.5e9, seconds=(half,) * 3)
    fifth = 0.1 + 0.5e9 / 500e9 + 2e-6
    conv = {"number_format": "tf32", "flops": 1e12, "bytes": 0.5e9}
    yield TimedOperator(kind=Kind.CONVOLUTION, shape="conv", seconds=(fifth,) * 3, **conv)


def moves():
    yield TimedOperator(kind=Kind.MOVE, shape="copy", bytes=1e9, is_large=True, seconds=(1e-3,) * 3)
    for kind in (Kind.NORM, Kind.SOFTMAX, Kind.ELEMENTWISE, Kind.REDUCTION, Kind.INDEX):
        yield TimedOperator(kind=kind, shape=str(kind), bytes=1e9, seconds=(2e-3 + 2e-6,) * 3)


def to_all(devices, sharing=()):
    """Copies to all pairs and to all at once; those of `sharing` take twice as long."""
    pairs = [(a, b) for a in range(devices) for b in range(a + 1, devices)]
    wanted = [*pairs, tuple(range(devices))] if devices > 2 else pairs
    return tuple(
        Together(devices=each, alone_s=(0.01,), together_s=(0.02 if each in sharing else 0.0101,)) for each in wanted
    )


def machine_of(devices=1, *, peers=True, pair_s=0.008, links=(), sharing=(), nodes=None, collectives=True, **more):
    """Measurements of a machine: 10 TFLOP/s, 1 TB/s, 6.7 GB/s to the host, 8.4 between devices."""
    pairs = tuple(
        PairCopies(
            source=a,
            destination=b,
            is_peer=peers if isinstance(peers, bool) else (a, b) in peers,
            seconds=series(pair_s(a, b) if callable(pair_s) else pair_s),
            latency_s=series(20e-6),
        )
        for a, b in permutations(range(devices), 2)
    )
    ring = Collectives(
        large_bytes=SIZE, all_reduce_s=(0.011,) * 3, broadcast_s=(0.01,), small_s=(0.001,) * 3, host_s=(60e-6,) * 3
    )
    values = {
        "date": "2026-11-23",
        "torch": "2.13.0",
        "names": ("Wizard 9000",) * devices,
        "cpu_model": "a CPU",
        "capability": (8, 0),
        "memory_bytes": (2**34,) * devices,
        "numa_nodes": (None,) * devices if nodes is None else nodes,
        "links": links,
        "copy_bytes": SIZE,
        "operators": (*products(), *moves()),
        "gap_s": series(2e-6),
        "same_work_s": tuple(series(0.1) for _ in range(devices)),
        "host_copies": tuple(
            HostCopies(device=d, to_device_s=series(0.01), from_device_s=series(0.01), latency_s=series(10e-6))
            for d in range(devices)
        ),
        "pairs": pairs,
        "to_all": to_all(devices, sharing) if devices > 1 else (),
        "collectives": ring if collectives and devices > 1 else None,
        "calls_s": {HostCost(name): series(5e-6) for name in CALLS},
        "forward_module_s": series(30e-6),
        "forward_builtin_s": series(10e-6),
        "slopes": {
            HostCost.BACKWARD: Slope(short=10, long=20, short_s=(150e-6,) * 3, long_s=(250e-6,) * 3),
            HostCost.OPTIMISER_PARAMETER: Slope(short=10, long=110, short_s=(1e-4,) * 3, long_s=(3e-4,) * 3),
            HostCost.REPLICATE_MODULE: Slope(short=1, long=2, short_s=(1e-4,) * 3, long_s=(1.2e-4,) * 3),
        },
    }
    return Measurements(**{**values, **more})
