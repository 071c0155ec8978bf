"""Print the tables ``[efficiency.*]`` of `dpbench/machines/parts.toml`.

An operator's time is ``FLOPs / (peak x flop share) + bytes / (bandwidth x byte share)``, as `dpbench project` adds.
`neusight_labels.csv` has the measured times. low, mid and high are the 10, 50 and 90 % quantiles of the shares.

    layer norm, softmax, element-wise   byte share = bytes / bandwidth / time
    linear, batched matrix product      flop share = FLOPs / peak / (time - bytes at the element-wise share)

Shares above 1 become 1: cards clock higher than the peak's nominal clock. An interval is at least from 0.9 to 1.05
times the middle, because the labels are of single forward operators on contiguous data. With fewer than 20 labels it
is widened by another 1.15. Kinds without labels have a range of our own, and `source` says so. So do convolutions:
their labels have random shapes, and shares above 1 where cuDNN needs fewer FLOPs; the source quotes them.
"""

import csv
import tomllib
from collections import defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
LABELS = HERE / "neusight_labels.csv"
PARTS = HERE.parents[2] / "dpbench" / "machines" / "parts.toml"
FLOAT32_CONVOLUTION = (0.45, 0.6, 0.75)
TF32_CONVOLUTION = (0.25, 0.4, 0.55)
DESKTOP_CONVOLUTION = (0.2, 0.4, 0.65)
# By name of a table: the labels' devices, by how much the interval is widened, and the share of convolutions.
GROUPS = {
    "pascal": (("P100-PCIE",), 1.0, FLOAT32_CONVOLUTION),
    "volta": (("V100-PCIE",), 1.0, FLOAT32_CONVOLUTION),
    "turing-t4": (("T4",), 1.0, (0.3, 0.5, 0.65)),
    "turing-desktop": (("T4", "V100-PCIE"), 1.0, FLOAT32_CONVOLUTION),
    "ampere-a100": (("A100-PCIE-40", "A100-PCIE-80"), 1.0, TF32_CONVOLUTION),
    "ampere-ada-desktop": (("A100-PCIE-40", "A100-PCIE-80", "L4"), 1.0, DESKTOP_CONVOLUTION),
    "hopper": (("H100-SXM",), 1.0, TF32_CONVOLUTION),
    "hopper-h200": (("H100-SXM",), 1.15, TF32_CONVOLUTION),
    "ada-l4": (("L4",), 1.0, (0.15, 0.35, 0.55)),
}
# The device in parts.toml whose peaks are those of the labels' card.
PEAKS_OF = {
    "P100-PCIE": "P100-PCIE",
    "V100-PCIE": "V100-PCIE",
    "T4": "T4",
    "A100-PCIE-40": "A100-PCIE-40",
    "A100-PCIE-80": "A100-PCIE-80",
    "H100-SXM": "H100-SXM",
    "L4": "L4",
}
MEASURED = {"linear": "matmul", "bmm": "batched_matmul", "ln": "norm", "softmax": "softmax", "conv": "convolution"}
FITTED = ("matmul", "batched_matmul", "norm", "softmax", "elementwise")
FEWEST = 20
WIDER_IF_FEW = 1.15
TENSORS = {"add": 3, "mul": 3}  # read and written; others 2
FLOAT_BYTES = 4
# Kinds without labels: factors of the element-wise byte share.
OF_ELEMENTWISE = {
    "convolution": (0.85, 1.0, 1.0),
    "matmul": (1.0, 1.0, 1.0),
    "batched_matmul": (1.0, 1.0, 1.0),
    "reduction": (0.5, 0.85, 1.0),
    "index": (0.2, 0.6, 1.0),
    "move": (0.5, 0.85, 1.0),
}


def sizes(operator: str, shape: str) -> tuple[float, float]:
    """FLOPs and bytes of an operator in float32."""
    numbers = [int(size) for size in shape.split("x")]
    if operator == "conv":
        batch, channels, out, kernel, image, stride, padding = numbers
        image_out = (image + 2 * padding - kernel) // stride + 1
        weights = channels * out * kernel**2
        moved = batch * (channels * image**2 + out * image_out**2) + weights
        return 2 * batch * image_out**2 * weights, FLOAT_BYTES * moved
    if operator in ("linear", "bmm"):
        batch, rows, inner, columns = numbers
        weights = inner * columns * (batch if operator == "bmm" else 1)
        return 2 * batch * rows * inner * columns, FLOAT_BYTES * (batch * rows * (inner + columns) + weights)
    rows, columns = numbers
    return 0, FLOAT_BYTES * rows * columns * TENSORS.get(operator, 2)


def shares() -> dict[tuple[str, str], list[float]]:
    """The measured shares by the labels' device and kind."""
    devices = tomllib.loads(PARTS.read_text())["device"]
    with LABELS.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    measured = defaultdict(list)
    for pass_ in ("bytes", "FLOPs"):
        for row in rows:
            name, operator, seconds = row["device"], row["operator"], float(row["measured_ms"]) / 1e3
            flops, moved = sizes(operator, row["shape"])
            device = devices[PEAKS_OF[name]]
            moving = moved / (device["bandwidth"]["mid"] * 1e9)
            if pass_ == "bytes" and not flops:
                measured[name, MEASURED.get(operator, "elementwise")].append(min(1.0, moving / seconds))
            elif pass_ == "FLOPs" and flops:
                rest = seconds - moving / np.median(measured[name, "elementwise"])
                peak = device["peak"]["float32"]["mid"] * 1e12
                measured[name, MEASURED[operator]].append(min(1.0, flops / peak / rest) if rest > 0 else 1.0)
    return measured


def quantiles(values: list[float], widened: float) -> tuple[float, float, float]:
    """The 10, 50 and 90 % quantiles, the outer ones moved outwards by a factor."""
    low, mid, high = (float(q) for q in np.quantile(values, (0.1, 0.5, 0.9)))
    if len(values) < FEWEST:
        widened *= WIDER_IF_FEW
    return min(low / widened, 0.9 * mid), mid, min(1.0, max(high * widened, 1.05 * mid))


def line(kind: str, numbers: tuple[float, float, float], source: str) -> str:
    """One quantity as TOML."""
    low, mid, high = (f"{number:.2f}" for number in numbers)
    return f'{kind} = {{ low = {low}, mid = {mid}, high = {high}, unit = "ratio", source = "{source}" }}'


def convolution_source(devices: tuple[str, ...], measured: dict[tuple[str, str], list[float]]) -> str:
    """How far the range is from the labels in float32."""
    medians = {card: np.median(measured[card, "convolution"]) for card in devices if measured[card, "convolution"]}
    quoted = ", ".join(f"{median:.2f} on {device}" for device, median in medians.items())
    text = "our range, not fitted, a share of tf32 where the card has it"
    return f"{text}; NeuSight's random convolutions in float32 have the medians {quoted}" if quoted else text


def main() -> None:
    measured = shares()
    for group, (devices, widened, convolution) in GROUPS.items():
        kinds = {}
        for kind in FITTED:
            values = [value for device in devices for value in measured[device, kind]]
            text = f"fit_efficiency.py: {len(values)} of NeuSight's labels on {' and '.join(devices)}"
            text += "" if widened == 1 else f", widened by {widened:g}; not this card"
            text += "; not this card" if "desktop" in group else ""
            kinds[kind] = (quantiles(values, widened), text)
        print(f"\n[efficiency.{group}.flop]")
        print(line("convolution", convolution, convolution_source(devices, measured)))
        for kind in ("matmul", "batched_matmul"):
            print(line(kind, *kinds[kind]))
        print(f"\n[efficiency.{group}.byte]")
        base = kinds["elementwise"][0]
        for kind, factors in OF_ELEMENTWISE.items():
            numbers = tuple(share * factor for share, factor in zip(base, factors, strict=True))
            print(line(kind, numbers, "our range, not fitted; from the element-wise share"))
        for kind in ("norm", "softmax", "elementwise"):
            print(line(kind, *kinds[kind]))


if __name__ == "__main__":
    main()
