"""Steps of ResNet-50 on four devices, recorded once and committed, in place of a recorder."""

from pathlib import Path

from dpbench.projection.affine import AffineStep

STEPS = Path(__file__).parents[2] / "benchmarks" / "projection" / "recordings"


def recorded(workload, variant, lanes):
    """Return the step of torch_dp on four lanes, or of one device."""
    name = "single-1" if lanes == 1 else "torch_dp-4"
    return AffineStep.read(STEPS / f"resnet50_plain-{name}.json.gz")
