"""Hold the projection against published steps, and write `results/projection.md` and the model's error.

``python -m benchmarks.projection.validate`` reads the recordings, predicts, and writes the page, the predictions and
`dpbench/projection/model_error.toml`.
With ``--record`` it makes the recordings anew first, minutes for each. With ``--json`` it prints the predictions and
writes nothing.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from benchmarks.about import heading
from benchmarks.projection.left_out import model_error_of
from benchmarks.projection.outcomes import Order, Outcome, as_json, orders_of, outcome_of
from benchmarks.projection.predict import Predictor, recordings_of
from benchmarks.projection.report import page
from benchmarks.projection.row_file import Table, load_tables
from dpbench.cases.variants import VariantId
from dpbench.errors import WrongInputError
from dpbench.projection.affine import AffineStep
from dpbench.projection.model_error import FILE, ModelError

HERE = Path(__file__).parent
RECORDINGS = HERE / "recordings"
PREDICTIONS = HERE / "predictions.json"
PAGE = HERE.parents[1] / "results" / "projection.md"
COVERAGE_AIM = 0.8


def recording_file(workload: str, variant: VariantId, lanes: int) -> Path:
    """Return the file of a recorded step."""
    return RECORDINGS / f"{workload.partition(':')[2]}-{variant}-{lanes}.json.gz"


@cache
def step_of(workload: str, variant: VariantId, lanes: int) -> AffineStep:
    """Return a committed recording."""
    return AffineStep.read(recording_file(workload, variant, lanes))


def record(tables: Iterable[Table]) -> None:
    """Record all steps that the tables need."""
    from dpbench.processes.record_step import record_step  # it starts processes, so only if asked

    RECORDINGS.mkdir(exist_ok=True)
    for workload, variant, lanes in sorted(set().union(*map(recordings_of, tables))):
        step = record_step(workload, variant, lanes)
        step.write(recording_file(workload, variant, lanes))
        print(
            f"{recording_file(workload, variant, lanes).name}: {len(step.first.events)} events",
            file=sys.stderr,
            flush=True,
        )


def compared(tables: Mapping[str, Table]) -> tuple[list[Outcome], list[Order]]:
    """Return the outcomes of all cases, and the orders of variants."""
    outcomes, orders = [], []
    for name, table in tables.items():
        predictor = Predictor(table, step_of)
        found = [predictor.predict(series, case) for series in table.series for case in series.cases]
        outcomes += [outcome_of(name, table, each) for each in found]
        orders += orders_of(name, table, found)
    return outcomes, orders


def error_text(error: ModelError) -> str:
    """Return the file of the model's error."""
    return f"""\
# Written by `python -m benchmarks.projection.validate` from the rows of benchmarks/projection/rows. model_error.py says
# what the factors are, and results/projection.md where they come from.
step_time = {error.step_time:.4f}
ratio = {error.ratio:.4f}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="make the recordings anew")
    parser.add_argument("--json", action="store_true", help="print the predictions as JSON, write nothing")
    options = parser.parse_args()
    try:
        tables = load_tables()
        if options.record:
            record(tables.values())
        outcomes, orders = compared(tables)
    except (WrongInputError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = json.dumps(as_json(outcomes), indent=1) + "\n"
    if options.json:
        print(text, end="")
        return 0
    PREDICTIONS.write_text(text)
    FILE.write_text(error_text(model_error_of(outcomes)))
    PAGE.write_text(page(heading("benchmarks.projection.validate"), tables, outcomes, orders, COVERAGE_AIM))
    return 0


if __name__ == "__main__":
    sys.exit(main())
