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
        """Return the sums of each combination, or why there are none.

        One child for each commit counts all combinations.
        """
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
        found = count.count_all(list(cases.values()))
        return {place: _sums_or_reason(each) for place, each in zip(cases, found, strict=True)}

    def track_operators(self, found, *place):
        return _one(found, place, "operators")

    def track_copies(self, found, *place):
        return _one(found, place, "copies")

    def track_copied_bytes(self, found, *place):
        return _one(found, place, "copied_bytes")

    def track_allocations(self, found, *place):
        return _one(found, place, "allocations")

    def track_peak_bytes(self, found, *place):
        return _one(found, place, "peak_bytes")

    def track_python_calls(self, found, *place):
        """Return the calls on as many CPU lanes. torch_dp has no CPU lanes."""
        return _one(found, place, "python_calls", kind="cpu")

    track_operators.unit = track_copies.unit = track_allocations.unit = track_python_calls.unit = "count"
    track_copied_bytes.unit = track_peak_bytes.unit = "bytes"


def _sums_or_reason(found):
    if found.counts is None:
        return f"{found.outcome}: {found.reason}"
    return sums(found.counts)


def sums(found: count_record.Counts) -> dict[str, int]:
    """Return each count summed over phases, devices and links.

    `peak_bytes` is the highest peak of any device.
    """
    phases = list(found.phases.values())
    traffic = [each for phase in phases for each in (phase.copies or {}).values()]
    return {
        "operators": sum(phase.operators or 0 for phase in phases),
        "copies": sum(each.count for each in traffic),
        "copied_bytes": sum(each.size_bytes for each in traffic),
        "allocations": sum(phase.allocations or 0 for phase in phases),
        "peak_bytes": max((peak for phase in phases for peak in (phase.peak_bytes or {}).values()), default=0),
        "python_calls": sum(phase.python_calls or 0 for phase in phases),
    }


def _one(found, place, name, kind="sim"):
    counted = found.get((*place, kind))
    if counted is None:
        _case.skip("torch.nn.DataParallel has no CPU lanes")
    if isinstance(counted, str):
        if counted.startswith(f"{record.Outcome.SKIPPED}:"):
            _case.skip(counted)
        _case.refuse(counted)
    return counted[name]
