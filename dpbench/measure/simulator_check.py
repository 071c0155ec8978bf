"""Does the simulator work with this torch? ``python -m dpbench.measure.simulator_check`` prints what it gets wrong.

`simulator/torch_versions.py` starts it for a torch newer than those that the tests ran with.
"""

import gc

import torch

from dpbench.cases.case import Case
from dpbench.cases.names import Dtype
from dpbench.cases.variants import VariantId
from dpbench.measure.count_step import Extras, count_simulated
from dpbench.measure.session import Session, open_session
from dpbench.records.count_record import Counts, Phase
from dpbench.simulator import RaceError
from dpbench.simulator.backend import start_devices

_DEVICES = ("sim:0", "sim:1")
_STEPS = (
    ("single", "transformer/tiny"),
    ("torch_dp", "mlp/tiny"),
    ("naive", "mlp/tiny"),
    ("tuned[dispatch=sequence]", "mlp/tiny"),
)


def fault() -> str | None:
    """Start the simulator; return the first thing that it gets wrong. The process must do nothing else."""
    torch.set_num_threads(1)
    gc.disable()  # as in `count_step.count`
    try:
        start_devices(len(_DEVICES))
        for variant, workload in _STEPS:
            session = _session(variant, workload, _DEVICES[: 1 + (variant != "single")])
            expected = _trained(_session("single", workload, ("cpu",)))
            if not all(map(_is_close, _trained(session), expected)):
                return f"{variant} on {workload}: the weights after two steps differ from those of the CPU"
            first, second = _counts(session), _counts(session)
            if first != second or not first.phases[Phase.FORWARD].flops:
                return f"{variant} on {workload}: the counts of two steps differ, or are 0"
        return next((f"a race is not found: {name}" for name, reuses in _RACES.items() if not _races(reuses)), None)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[-1 if 'Traceback' in str(error) else 0]}"


def _session(variant: str, workload: str, devices: tuple[str, ...]) -> Session:
    case = Case(variant=VariantId(variant), workload=workload, batch=8, devices=devices, threads=1, dtype=Dtype.FLOAT64)
    return open_session(case)


def _trained(session: Session) -> list[torch.Tensor]:
    for _ in range(2):
        session.step()
    return [parameter.detach().cpu() for parameter in session.base.parameters()]


def _counts(session: Session) -> Counts:
    gc.collect()
    return count_simulated(session, Extras()).counts


def _is_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-6, atol=1e-9)


def _races(reuses_memory: bool) -> bool:
    """Read a tensor on a side stream too early, or free it too early."""
    sim = torch.get_device_module("sim")
    side, x = sim.Stream(0), torch.zeros(100, device=_DEVICES[0])
    if reuses_memory:
        side.wait_stream(sim.current_stream(0))
    try:
        with sim.stream(side):
            x.sum()
        del x
        torch.zeros(100, device=_DEVICES[0])
    except RaceError:
        return True
    return False


_RACES = {"a read of another stream's write": False, "memory that another stream reads": True}

if __name__ == "__main__":
    print(fault() or "")  # noqa: T201
