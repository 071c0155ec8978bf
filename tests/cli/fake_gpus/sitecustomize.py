"""Two fake GPUs for a measuring child. Python imports this at its start if this folder is on PYTHONPATH.

Nothing is imported before dpbench's child imports the patched modules, so the parent process stays without NVML.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

GPUS = {"cuda:0": "aaaa", "cuda:1": "bbbb"}
PEAKS = {"cuda:0": 3 * 2**30, "cuda:1": 2 * 2**30}


def fake_telemetry(module):
    import time

    import pynvml

    from tests.fake_nvml import FakeGpu, FakeNvml, Levels

    def always(value):
        return Levels((0, value))

    hot = {pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL: always(1)}
    # Samples more often than a real driver: a test's window may be shorter than 0.1 s.
    usual = {"sample_period_s": 0.001, "pcie_bytes_per_s": always(1e9), "nvlink_bytes_per_s": always(8e9)}
    busy = FakeGpu("aaaa", busy_percent=always(80), power_w=always(500), throttled=hot, **usual)
    idle = FakeGpu("bbbb", busy_percent=always(20), power_w=always(200), throttled={}, **usual)
    idle.refuses["nvmlDeviceGetTotalEnergyConsumption"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    pynvml.nvmlLib = FakeNvml([busy, idle], time.time)
    module.uuids_of = lambda _: GPUS


def fake_peaks(module):
    from dpbench.records.readings import Reading

    module.peak_device_bytes = lambda _: {device: Reading(value=peak) for device, peak in PEAKS.items()}
    module.peak_reserved_bytes = module.peak_device_bytes


PATCHES = {"dpbench.measure.gpu.telemetry": fake_telemetry, "dpbench.measure.memory": fake_peaks}


class Patching(MetaPathFinder):
    """Patches each module of PATCHES when it has been imported."""

    def find_spec(self, name, path, target=None):
        if name not in PATCHES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_patch(module):
            execute(module)
            PATCHES[name](module)

        spec.loader.exec_module = execute_and_patch
        return spec


sys.meta_path.insert(0, Patching())
