"""A fake NVML: a Python object that replaces libnvidia-ml behind pynvml's own marshalling.

Its methods are NVML's functions. They fill the structures that pynvml passes by reference and return a status. A
function that is missing here is one that the driver does not have.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor

import pynvml

UINT_MAX = 0xFFFFFFFF


class Levels:
    """A number that is constant from each of the given moments to the next: (from_s, value), in order."""

    def __init__(self, *levels: tuple[float, float]) -> None:
        self._levels = levels

    def total(self, to_s: float) -> float:
        """Return the integral over time up to a moment."""
        ends_s = [*(from_s for from_s, _ in self._levels[1:]), to_s]
        spans = zip(self._levels, ends_s, strict=True)
        return sum(value * max(0.0, min(end_s, to_s) - from_s) for (from_s, value), end_s in spans)

    def mean(self, from_s: float, to_s: float) -> float:
        return (self.total(to_s) - self.total(from_s)) / (to_s - from_s)


IDLE = Levels((0, 0))


@dataclass
class FakeGpu:
    """What one GPU does over time.

    `throttled` is by field id and is 1 while the GPU is throttled. `links` are the other ends of its NVLinks, '' for
    one that is down. `refuses` has the status that a function, a field or a GPM metric returns, by name or id. The
    counters of PCIe bytes start at `pcie_start` and have `pcie_bits`.
    """

    uuid: str
    name: str = "Fake H100"
    pci: str = "00000000:01:00.0"
    busy_percent: Levels = IDLE
    power_w: Levels = IDLE
    pcie_bytes_per_s: Levels = IDLE
    nvlink_bytes_per_s: Levels = IDLE
    throttled: Mapping[int, Levels] = field(default_factory=dict)
    gpm: bool = True
    mig: bool = False
    slice_of_mig: bool = False
    pcie_start: int = 0
    pcie_bits: int = 64
    sample_period_s: float = 0.1
    sample_capacity: int = 100
    lost_after_s: float = float("inf")
    links: Sequence[str] = ()
    power_limit_w: float = 700.0
    refuses: dict[str | int, int] = field(default_factory=dict)

    def counter(self, field_id: int, scope: int, now_s: float) -> tuple[int, int]:
        """Return a field's value and how many bits it has."""
        if field_id in (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES):
            # What is received is half of what is sent.
            share = 1 if field_id == pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES else 0.5
            return int(self.pcie_start + share * self.pcie_bytes_per_s.total(now_s)), self.pcie_bits
        if field_id in (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX):
            links = 1 if scope == UINT_MAX else 0.25
            return int(links * self.nvlink_bytes_per_s.total(now_s)) // 1024, 64
        return int(1e9 * self.throttled.get(field_id, IDLE).total(now_s)), 64

    def gpm_metric(self, metric: int, from_s: float, to_s: float) -> float:
        rates = {
            pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: (self.pcie_bytes_per_s, 1),
            pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: (self.pcie_bytes_per_s, 0.5),
            pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: (self.nvlink_bytes_per_s, 1),
            pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: (self.nvlink_bytes_per_s, 1),
        }
        if metric in rates:
            levels, share = rates[metric]
            return share * levels.mean(from_s, to_s) / 2**20
        return self.busy_percent.mean(from_s, to_s)

    def sample(self, kind: int, time_s: float) -> int:
        """Return a sample at this moment, which stands for the period before it."""
        since_s = time_s - self.sample_period_s
        if kind == pynvml.NVML_TOTAL_POWER_SAMPLES:
            return round(1000 * self.power_w.mean(since_s, time_s))
        if kind in (pynvml.NVML_PROCESSOR_CLK_SAMPLES, pynvml.NVML_MEMORY_CLK_SAMPLES):
            return 1980 if kind == pynvml.NVML_PROCESSOR_CLK_SAMPLES else 2619
        return round(self.busy_percent.mean(since_s, time_s))


class _RefusalError(Exception):
    def __init__(self, status: int) -> None:
        self.status = status


class FakeNvml:
    """A driver with these GPUs, in NVML's order, at the time of `clock`. `calls` are the names of all calls."""

    def __init__(self, gpus: Sequence[FakeGpu], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._devices = [(pynvml.struct_c_nvmlDevice_t(), gpu) for gpu in gpus]
        self._samples: dict[int, tuple[ctypes.Structure, FakeGpu | None, float]] = {}
        self.calls: list[str] = []
        self._is_started = False

    def install(self, monkeypatch) -> "FakeNvml":
        monkeypatch.setattr(pynvml, "nvmlLib", self)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        return self

    @property
    def samples_held(self) -> int:
        """How many of GPM's buffers are not freed."""
        return len(self._samples)

    def __getattr__(self, name: str):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        body = object.__getattribute__(self, f"_{name}")

        def function(*arguments) -> int:
            self.calls.append(name)
            if not self._is_started and name != "nvmlInitWithFlags":
                return pynvml.NVML_ERROR_UNINITIALIZED
            try:
                body(*(self._plain(name, argument) for argument in arguments))
            except _RefusalError as refusal:
                return refusal.status
            return pynvml.NVML_SUCCESS

        return function

    def _plain(self, name: str, argument):
        """A reference as what it refers to, a handle as its GPU, a number as an int."""
        if isinstance(argument, pynvml.c_nvmlDevice_t):
            return self._ready(name, self._gpu_of(argument))
        if isinstance(argument, ctypes.Array):  # a buffer to be filled
            return argument
        return getattr(argument, "_obj", getattr(argument, "value", argument))

    def _gpu_of(self, handle) -> FakeGpu:
        address = ctypes.addressof(handle.contents)
        return next(gpu for struct, gpu in self._devices if ctypes.addressof(struct) == address)

    def _ready(self, name: str, gpu: FakeGpu) -> FakeGpu:
        if self._clock() >= gpu.lost_after_s:
            raise _RefusalError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if name in gpu.refuses:
            raise _RefusalError(gpu.refuses[name])
        return gpu

    # From here on: NVML's functions.

    def _nvmlInitWithFlags(self, flags):
        self._is_started = True

    def _nvmlSystemGetDriverVersion(self, text, size):
        text.value = b"580.65.06"

    def _nvmlSystemGetCudaDriverVersion_v2(self, version):
        version.value = 13000

    def _nvmlDeviceGetCount_v2(self, count):
        count.value = len(self._devices)

    def _nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle.contents, gpu = self._devices[index]
        self._ready("nvmlDeviceGetHandleByIndex_v2", gpu)

    def _nvmlDeviceGetHandleByUUID(self, uuid, handle):
        for struct, gpu in self._devices:
            if f"{'MIG' if gpu.slice_of_mig else 'GPU'}-{gpu.uuid}".encode() == uuid:
                self._ready("nvmlDeviceGetHandleByUUID", gpu)
                handle.contents = struct
                return
        raise _RefusalError(pynvml.NVML_ERROR_NOT_FOUND)

    def _nvmlDeviceIsMigDeviceHandle(self, gpu, is_slice):
        is_slice.value = gpu.slice_of_mig

    def _nvmlDeviceGetMigMode(self, gpu, current, pending):
        current.value = pending.value = gpu.mig

    def _nvmlDeviceGetTotalEnergyConsumption(self, gpu, millijoules):
        # Brought up to date every 0.1 s, as the real one.
        millijoules.value = round(1000 * gpu.power_w.total(floor(self._clock() * 10 + 1e-6) / 10))

    def _nvmlDeviceGetClockInfo(self, gpu, clock, mhz):
        mhz.value = 1755 if clock == pynvml.NVML_CLOCK_SM else 2600

    def _nvmlDeviceGetMaxClockInfo(self, gpu, clock, mhz):
        mhz.value = 1980 if clock == pynvml.NVML_CLOCK_SM else 2619

    def _nvmlDeviceGetEnforcedPowerLimit(self, gpu, milliwatts):
        milliwatts.value = int(1000 * gpu.power_limit_w)

    def _nvmlDeviceGetMemoryInfo(self, gpu, info):
        info.total = 80 * 2**30

    def _nvmlDeviceGetPciInfo_v3(self, gpu, info):
        info.busId = gpu.pci.encode()

    def _nvmlDeviceGetP2PStatus(self, gpu, other, index, status):
        assert index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        linked = gpu.links and other.links
        status.value = pynvml.NVML_P2P_STATUS_OK if linked else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED

    def _nvmlDeviceGetNvLinkState(self, gpu, link, is_active):
        if link >= len(gpu.links):
            raise _RefusalError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        is_active.value = bool(gpu.links[link])

    def _nvmlDeviceGetNvLinkRemotePciInfo_v2(self, gpu, link, info):
        info.busId = gpu.links[link].encode()

    def _nvmlDeviceGetTopologyCommonAncestor(self, gpu, other, level):
        level.value = pynvml.NVML_TOPOLOGY_HOSTBRIDGE

    def _nvmlDeviceGetFieldValues(self, gpu, count, values):
        for value in values:
            value.nvmlReturn = gpu.refuses.get(value.fieldId, pynvml.NVML_SUCCESS)
            number, bits = gpu.counter(value.fieldId, value.scopeId, self._clock())
            wide = bits == 64
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG if wide else pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            setattr(value.value, "ullVal" if wide else "uiVal", number % 2**bits)

    def _nvmlDeviceGetSamples(self, gpu, kind, last_seen_us, value_type, count, samples):  # noqa: PLR0917  # NVML's own
        last = floor(self._clock() / gpu.sample_period_s + 1e-6)
        first = max(last - gpu.sample_capacity, floor(last_seen_us / 1e6 / gpu.sample_period_s + 1e-6))
        times_s = [i * gpu.sample_period_s for i in range(first + 1, last + 1)]
        if not times_s:
            raise _RefusalError(pynvml.NVML_ERROR_NOT_FOUND)
        value_type.value, count.value = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, len(times_s)
        for place, time_s in enumerate(times_s if samples is not None else ()):
            samples[place].timeStamp = round(time_s * 1e6)
            samples[place].sampleValue.uiVal = gpu.sample(kind, time_s)

    def _nvmlGpmQueryDeviceSupport(self, gpu, support):
        assert support.version == pynvml.NVML_GPM_SUPPORT_VERSION
        support.isSupportedDevice = gpu.gpm

    def _nvmlGpmSampleAlloc(self, sample):
        struct = pynvml.struct_c_nvmlGpmSample_t()
        sample.contents = struct
        self._samples[ctypes.addressof(struct)] = (struct, None, 0.0)

    def _nvmlGpmSampleGet(self, gpu, sample):
        address = ctypes.addressof(sample.contents)
        self._samples[address] = (self._samples[address][0], gpu, self._clock())

    def _nvmlGpmMetricsGet(self, request):
        assert request.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        (_, gpu, from_s), (_, other, to_s) = (
            self._samples[ctypes.addressof(sample.contents)] for sample in (request.sample1, request.sample2)
        )
        assert gpu is other
        for metric in request.metrics[: request.numMetrics]:
            metric.nvmlReturn = gpu.refuses.get(metric.metricId, pynvml.NVML_SUCCESS)
            metric.value = gpu.gpm_metric(metric.metricId, from_s, to_s)

    def _nvmlGpmSampleFree(self, sample):
        del self._samples[ctypes.addressof(sample.contents)]
