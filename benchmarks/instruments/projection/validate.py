"""Hold the sum against published steps, and write `results/projection.md` and the fitted constants.

``python -m benchmarks.instruments.projection.validate`` reads the counts in `counts/`, and writes the page and
`dpbench/projection/fitted.toml`. With ``--record`` it makes the counts anew first, minutes for each.
"""

import argparse
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from benchmarks.instruments.about import heading
from benchmarks.instruments.projection.fit import needed, rows_of, with_errors
from benchmarks.instruments.projection.outcomes import outcomes_of
from benchmarks.instruments.projection.report import page
from benchmarks.instruments.projection.row_file import Table, load_tables
from dpbench.cases.variants import VariantId
from dpbench.errors import WrongInputError
from dpbench.projection.step_counts import AffineCounts
from dpbench.projection.step_sum import FILE, Fitted

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "results" / "projection.md"


def counts_file(workload: str, variant: VariantId, lanes: int) -> Path:
    return HERE / "counts" / f"{workload.partition(':')[2]}-{variant}-{lanes}.json"


@cache
def counts_of(workload: str, variant: VariantId, lanes: int) -> AffineCounts:
    return AffineCounts.parse(counts_file(workload, variant, lanes).read_text())


def record(tables: Iterable[Table]) -> None:
    from dpbench.jobs.count_steps import count_affine  # it starts processes, so only if asked

    for key in sorted(set().union(*map(needed, tables))):
        path = counts_file(*key)
        path.write_text(count_affine(*key).text() + "\n")
        print(path.name, file=sys.stderr, flush=True)


def fitted_text(fitted: Fitted) -> str:
    return f"""\
# Written by `python -m benchmarks.instruments.projection.validate` from the rows in `rows/` there. step_sum.py says
# what each number is, and results/projection.md how far published steps are from the sum.
speed_float32 = {fitted.speed_float32:.4f}
speed_tf32 = {fitted.speed_tf32:.4f}
beside = {fitted.beside:.4f}
step_error = {fitted.step_error:.4f}
ratio_error = {fitted.ratio_error:.4f}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="count the steps anew")
    options = parser.parse_args()
    try:
        tables = load_tables()
        if options.record:
            record(tables.values())
        rows = rows_of(tables, counts_of)
        outcomes, fitted = outcomes_of(rows), with_errors(rows)
    except (WrongInputError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    FILE.write_text(fitted_text(fitted))
    PAGE.write_text(page(heading("benchmarks.instruments.projection.validate"), tables, outcomes, rows, fitted))
    print(f"{PAGE} and {FILE}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
