"""Print the extract of NeuSight's labels that `fit_efficiency.py` reads.

    python benchmarks/projection/extract_labels.py CLONE > benchmarks/projection/neusight_labels.csv

CLONE is a checkout of https://github.com/sitar-lab/NeuSight. A row is one operator on one device: float32 without TF32,
torch 2.1, one GPU. Rows under `SHORTEST_MS` are left out, because the clock's own 7 us count there. At most `MOST`
rows of each operator and device are kept, spread evenly over the sorted shapes.
"""

import ast
import csv
import sys
from collections import defaultdict
from pathlib import Path

DEVICES = {
    "Tesla P100-PCIE-16GB": "P100-PCIE",
    "Tesla V100-PCIE-32GB": "V100-PCIE",
    "Tesla T4": "T4",
    "NVIDIA A100-PCIE-40GB": "A100-PCIE-40",
    "NVIDIA A100 80GB PCIe": "A100-PCIE-80",
    "NVIDIA H100 80GB HBM3": "H100-SXM",
    "NVIDIA L4": "L4",
}
SIZES = {
    "linear": ("B", "M", "N", "K"),
    "bmm": ("B", "M", "N", "K"),
    "conv": ("B", "Input_Channel", "Output_Channel", "Kernel_Szie", "Input_Size", "Stride", "Padding"),
}
VECTOR = ("ln", "softmax", "add", "mul", "gelu", "relu")
SHORTEST_MS = 0.1
MOST = 30
DATA, LABELS = Path("scripts/asplos/data/dataset"), Path("scripts/asplos/label")
HEADER = """\
# Operators on one GPU, measured by NeuSight (Lee et al., ASPLOS 2025): https://github.com/sitar-lab/NeuSight,
# scripts/asplos/data/dataset and scripts/asplos/label. Copyright (c) 2025 Georgia Institute of Technology and Microsoft
# Corporation; its MIT licence is in neusight_labels.LICENSE. This extract is made by extract_labels.py. float32 without
# TF32, torch 2.1, forward.
# shape: linear and bmm batch x rows x inner x columns; conv batch x channels in x out x kernel x image x stride x
# padding (random shapes); others rows x columns.
"""


def dataset(clone: Path) -> list[tuple[str, str, str, float]]:
    """Return rows with the shapes of models; random ones for convolutions and, as there are few others, V100's bmm."""
    files = [clone / DATA / "test" / f"{name}.csv" for name in ("linear", "bmm", "softmax", "ln", "elem")]
    files.append(clone / DATA / "train/collect/bmm/p2.1.0/Tesla V100-PCIE-32GB.csv")
    files += sorted((clone / DATA / "train/collect/conv/p2.1.0").glob("*.csv"))
    rows = []
    for file in files:
        with file.open(newline="") as opened:
            for row in csv.DictReader(opened):
                operator = row["OPName"]
                sizes = SIZES.get(operator, ("B", "H") if operator in VECTOR else ())
                if sizes and row["Device"] in DEVICES:
                    shape = "x".join(str(int(float(row[size]))) for size in sizes)
                    rows.append((DEVICES[row["Device"]], operator, shape, float(row["Latency"])))
    return rows


def model_labels(clone: Path) -> list[tuple[str, str, str, float]]:
    """Return the vector operators in BERT's and GPT-3's labels on H100, which the data set has no such rows of."""
    rows = []
    for file in sorted((clone / LABELS / "NVIDIA_H100_80GB_HBM3").glob("*.csv")):
        if file.name.startswith(("switch", "gpt2")):
            continue
        with file.open(newline="") as opened:
            for row in csv.DictReader(opened):
                operator = vector_operator(row["target"].lower())
                inputs = ast.literal_eval(row["input_shapes"] or "[]")
                if operator is None or (operator == "add" and (len(inputs) != 2 or inputs[0] != inputs[1])):
                    continue
                *outer, columns = inputs[0]
                count = 1
                for size in outer:
                    count *= size
                rows.append(
                    (DEVICES["NVIDIA H100 80GB HBM3"], operator, f"{count}x{columns}", float(row["fw_latency"]))
                )
    return rows


def vector_operator(target: str) -> str | None:
    """Return the data set's name of an operator in a traced model."""
    last = target.rsplit(".", maxsplit=1)[-1]
    if last.startswith(("layernorm", "ln_", "layer_norm", "final_layer_norm", "self_attn_layer_norm")):
        return "ln"
    return next((name for name in ("softmax", "gelu", "relu", "add") if f"function {name}" in target), None)


def main() -> None:
    clone = Path(sys.argv[1])
    groups = defaultdict(dict)
    for device, operator, shape, measured_ms in dataset(clone) + model_labels(clone):
        if measured_ms >= SHORTEST_MS:
            groups[device, operator].setdefault(shape, measured_ms)
    print(HEADER + "device,operator,shape,measured_ms")
    for (device, operator), found in sorted(groups.items()):
        shapes = sorted(found, key=lambda shape: [int(size) for size in shape.split("x")])
        for index in range(min(MOST, len(shapes))):
            shape = shapes[index * len(shapes) // min(MOST, len(shapes))]
            print(f"{device},{operator},{shape},{found[shape]:.5g}")


if __name__ == "__main__":
    main()
