"""Exact counts of one training step on simulated devices, without a GPU and without noise."""

from dpbench.cases import case, variants
from dpbench.jobs import count
from dpbench.records import count_record, record

from . import _case

_BATCH = 16


class Counters:
    """Counts that change only if the program or torch changes.

    Counts of `torch_dp` change only with torch.
    """

    params = (["torch_dp", "tuned"], ["mlp/tiny", "transformer/tiny"], [2, 4])
    param_names = ("variant", "workload", "lanes")
    timeout = 300
    version = "1"

    def setup_cache(self):
        """The sums of each combination, or why there are none. One child counts all."""
        cases = {
            (variant, workload, lanes, kind): case.Case(
                variant=variants.VariantName(variant), workload=workload, batch=_BATCH, devices=devices, threads=1
            )
            for variant in self.params[0]
            for workload in self.params[1]
            for lanes in self.params[2]
            for kind, devices in (("sim", tuple(f"sim:{i}" for i in range(lanes))), ("cpu", ("cpu",) * lanes))
            if (variant, kind) != ("torch_dp", "cpu")
        }
        counted = count.count_all(list(cases.values()))
        return {place: _sums_or_reason(counts) for place, counts in zip(cases, counted, strict=True)}

    def track_operators(self, all_sums, *place):
        return _one(all_sums, place, "operators")

    def track_copies(self, all_sums, *place):
        return _one(all_sums, place, "copies")

    def track_copied_bytes(self, all_sums, *place):
        return _one(all_sums, place, "copied_bytes")

    def track_allocations(self, all_sums, *place):
        return _one(all_sums, place, "allocations")

    def track_peak_bytes(self, all_sums, *place):
        return _one(all_sums, place, "peak_bytes")

    def track_python_calls(self, all_sums, *place):
        """On as many CPU lanes. torch_dp has none."""
        return _one(all_sums, place, "python_calls", kind="cpu")

    track_operators.unit = track_copies.unit = track_allocations.unit = track_python_calls.unit = "count"
    track_copied_bytes.unit = track_peak_bytes.unit = "bytes"


def _sums_or_reason(counted):
    if counted.counts is None:
        return f"{counted.outcome}: {counted.reason}"
    return sums(counted.counts)


def sums(counts: count_record.Counts) -> dict[str, int]:
    """Summed over phases, devices and links. `peak_bytes` is the highest peak of any device."""
    phases = list(counts.phases.values())
    traffic = [link for phase in phases for link in (phase.copies or {}).values()]
    return {
        "operators": sum(phase.operators or 0 for phase in phases),
        "copies": sum(link.count for link in traffic),
        "copied_bytes": sum(link.size_bytes for link in traffic),
        "allocations": sum(phase.allocations or 0 for phase in phases),
        "peak_bytes": max((peak for phase in phases for peak in (phase.peak_bytes or {}).values()), default=0),
        "python_calls": sum(phase.python_calls or 0 for phase in phases),
    }


def _one(all_sums, place, name, kind="sim"):
    counted = all_sums.get((*place, kind))
    if counted is None:
        _case.skip("torch.nn.DataParallel has no CPU lanes")
    if isinstance(counted, str):
        if counted.startswith(f"{record.Outcome.SKIPPED}:"):
            _case.skip(counted)
        _case.refuse(counted)
    return counted[name]
