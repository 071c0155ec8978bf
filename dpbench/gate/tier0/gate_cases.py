"""The cases that the gate counts beside those of `dpbench counts --check`. Pure.

buckets     small buckets, so that a small model has several: the order and the overlap of their sums show
inference   a forward without gradients
kept        a hundred further steps: the memory that each keeps
choices     which way the default dispatch chooses
"""

from dpbench.sweep.case import Case
from dpbench.sweep.names import Mode
from dpbench.sweep.variants import VariantId, VariantName

_LANES = 4
_BATCH = 16
SIMULATED = tuple(f"sim:{i}" for i in range(_LANES))
CPU = ("cpu",) * _LANES
_SMALL_BUCKETS = VariantId(VariantName.TUNED).with_parameters(bucket_bytes=2048, first_bucket_bytes=1024)
"""Five buckets for the 11 KiB of ``mlp/tiny``."""


KEPT_STEPS = 100
"""Further steps in which the kept memory is read. In the first of them caches fill: half as fast after each hundred."""


def gate_cases() -> tuple[Case, ...]:
    """Return the cases, each with the tuned wrapper."""
    return (
        _case("mlp/tiny", SIMULATED, variant=_SMALL_BUCKETS),
        _case("transformer/tiny", SIMULATED, Mode.INFER),
        _case("transformer/tiny", CPU, Mode.INFER),
    )


def kept_cases() -> tuple[Case, ...]:
    """Return the cases after which further steps are taken. All are counted anyway."""
    return (_case("mlp/tiny", CPU), _case("transformer/tiny", CPU, Mode.INFER))


def choice_case() -> Case:
    """Return the case beside which the choices of the default dispatch are counted."""
    return _case("transformer/tiny", CPU, Mode.INFER)


def _case(
    workload: str,
    devices: tuple[str, ...],
    mode: Mode = Mode.TRAIN,
    variant: str = VariantName.TUNED,
) -> Case:
    return Case(variant=VariantId(variant), workload=workload, batch=_BATCH, devices=devices, mode=mode, threads=1)
