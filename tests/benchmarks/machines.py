"""Measurements of machines that do not exist."""

from benchmarks.machine_file import Measured

FACTORS = tuple(0.9 + 0.01 * i for i in range(21))  # 10 %, 50 % and 90 % of it are 0.92, 1.0 and 1.08


def series(mid):
    return tuple(mid * factor for factor in FACTORS)


def machine_of(devices=1, **more):
    """A machine with 10 TFLOP/s, 1 TB/s, 8 GB/s between devices, and an all-reduce of 6 GB/s."""
    several = {"copy_pair": (0, 1), "copies": series(8e9), "all_reduce": series(6e9)} if devices > 1 else {}
    values = {
        "date": "2026-11-23",
        "torch": "2.13.0",
        "cpu_model": "a CPU",
        "names": ("Wizard 9000",) * devices,
        "memory_bytes": 2**34,
        "capability": (8, 0),
        "products": {"float32": series(1e13), "tf32": series(5e13)},
        "memory": series(1e12),
        "gap_s": series(2e-6),
        **several,
    }
    return Measured(**{**values, **more})
