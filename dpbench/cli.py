"""The command line: options in, one call per command, an exit code out.

Exit codes: 0 done; 1 no case could be measured; 2 wrong input, nothing was written; 3 this box cannot be used
as it is; 130 interrupted, the records so far are kept.
"""

import json
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, RenderableType

from dpbench import __version__
from dpbench.report.doctor import doctor_json, doctor_text
from dpbench.report.jsonout import comparisons_json
from dpbench.report.progress import progress_bar
from dpbench.report.text import comparisons_text
from dpbench.report.vocabulary import vocabulary_json, vocabulary_text
from dpbench.results.compare import UnlikeEnvironmentsError
from dpbench.results.compare import compare as compare_records
from dpbench.results.record import Outcome
from dpbench.results.run_path import new_run_path, sweep_path
from dpbench.results.store import Store, StoreError
from dpbench.run.ask import ProbeError, ask_box
from dpbench.run.campaign import box_for, conduct
from dpbench.sweep.box import Box
from dpbench.sweep.plan import PlanError, plan
from dpbench.sweep.spec import Spec, SpecError, from_options, load_spec


class ExitCode(IntEnum):
    OK = 0
    NOTHING_MEASURED = 1
    WRONG_INPUT = 2
    UNUSABLE_BOX = 3
    INTERRUPTED = 130


class UnusableBoxError(Exception):
    """This box cannot be used as it is."""


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_RESULTS = Path("results/runs")

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, nothing else there.")]
Results = Annotated[Path, typer.Option(help="Folder of records, one file a run.")]


def _option(text: str) -> Any:
    return typer.Option(help=text)


def _example(text: str) -> str:
    return f"Example:\n\n    {text}"


@app.command(epilog=_example("dpbench compare --variants tuned,naive --devices cpu*4"))
def compare(
    variants: Annotated[str | None, _option("Such as tuned,naive; all by default. See dpbench list.")] = None,
    workloads: Annotated[str, _option("Such as mlp/small,my_model:factory.")] = "mlp/small,convnet/tiny",
    batch: Annotated[str, _option("Global batch sizes, such as 64,256.")] = "64",
    devices: Annotated[str | None, _option("Such as cpu*4,cuda:0*2,cuda:0+cuda:1.")] = None,
    modes: Annotated[str, _option("train, infer or both.")] = "train",
    dtypes: Annotated[str, _option("float32, float64, bfloat16.")] = "float32",
    data: Annotated[str, _option("random or digits.")] = "random",
    rounds: Annotated[str, _option("Fresh processes of each case.")] = "5",
    budget: Annotated[str, _option("For all, such as 90s or 2m.")] = "100s",
    timeout: Annotated[str, _option("For one process beside its sampling, such as 2m.")] = "2m",
    threads: Annotated[str | None, _option("Intra-op threads of a step, over all lanes; all cores by default.")] = None,
    seed: Annotated[str, _option("Of models, batches and the order of cases.")] = "0",
    results: Results = _RESULTS,
    as_json: Json = False,
) -> ExitCode:
    """Compare the variants that this box can run."""
    spec = from_options(
        {
            "variants": variants,
            "workloads": workloads,
            "batch": batch,
            "devices": devices,
            "modes": modes,
            "dtypes": dtypes,
            "data": data,
            "rounds": rounds,
            "budget": budget,
            "case_time": budget,
            "timeout": timeout,
            "threads": threads,
            "seed": seed,
        }
    )
    return _measure(spec, lambda: new_run_path(results, "compare"), as_json)


@app.command(epilog=_example("dpbench sweep benchmarks/sweeps/quick.toml"))
def sweep(
    spec: Annotated[Path, typer.Argument(help="A TOML file; its keys are compare's options.")],
    results: Results = _RESULTS,
    as_json: Json = False,
) -> ExitCode:
    """Measure a sweep file; started again, go on where it stopped."""
    return _measure(load_spec(spec), lambda: sweep_path(results, spec), as_json)


@app.command("list", epilog=_example("dpbench list"))
def list_names(as_json: Json = False) -> ExitCode:
    """List variants, workloads, modes and metrics."""
    _warn(_unusable(ask_box()))
    _print(vocabulary_json() if as_json else vocabulary_text())
    return ExitCode.OK


@app.command(epilog=_example("dpbench doctor"))
def doctor(as_json: Json = False) -> ExitCode:
    """Tell what this box is, and which variants run on it and why not the others."""
    box = ask_box()
    warnings = _unusable(box)
    _warn(warnings)
    _print(doctor_json(box, warnings) if as_json else doctor_text(box))
    return ExitCode.OK


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Judge data parallelism in PyTorch: which variant is fastest on this box, and how far from the limit."""
    if version:
        _print(f"dpbench {__version__}")
        raise typer.Exit


def _measure(spec: Spec, make_path: Callable[[], Path], as_json: bool) -> ExitCode:
    """What compare and sweep share: the box, the plan, the records, what they say."""
    box = box_for(spec)
    if warnings := _unusable(box):
        raise UnusableBoxError("; ".join(warnings))
    planned = plan(spec, box)
    store = Store(make_path())
    with progress_bar(Console(stderr=True)) as progress:
        found = conduct(spec, planned, store, progress)
    _warn(list(found.warnings))
    compared = compare_records(found.records, planned.skipped, reference=spec.reference)
    _print(comparisons_json(compared) if as_json else comparisons_text(compared))
    measured = any(record.outcome is Outcome.OK for record in found.records)
    return ExitCode.OK if measured else ExitCode.NOTHING_MEASURED


def _unusable(box: Box) -> list[str]:
    if not box.unusable_gpus:
        return []
    names = ", ".join(box.unusable_gpus)
    return [f"NVML sees {names}, but torch {box.torch} can use no GPU: {box.torch_error or 'it does not say why'}"]


def _print(what: RenderableType | dict[str, Any]) -> None:
    if isinstance(what, dict):
        sys.stdout.write(json.dumps(what, indent=2, allow_nan=False) + "\n")
    else:
        Console(highlight=False).print(what)


def _warn(warnings: list[str]) -> None:
    for warning in warnings:
        print(f"dpbench: warning: {warning}", file=sys.stderr)  # noqa: T201


def main() -> NoReturn:
    """Run the command line and exit with one of `ExitCode`."""
    try:
        code = app(standalone_mode=False) or ExitCode.OK
    except (SpecError, PlanError, StoreError, UnlikeEnvironmentsError) as error:
        code = _complain(str(error), ExitCode.WRONG_INPUT)
    except typer.TyperException as error:
        code = _complain(f"{error.format_message()} Allowed: what `dpbench --help` lists.", ExitCode.WRONG_INPUT)
    except (ProbeError, UnusableBoxError) as error:
        code = _complain(str(error), ExitCode.UNUSABLE_BOX)
    except (KeyboardInterrupt, typer.Abort):
        code = _complain("interrupted; the records so far are kept", ExitCode.INTERRUPTED)
    sys.exit(code)


def _complain(message: str, code: ExitCode) -> ExitCode:
    print(f"dpbench: {message}", file=sys.stderr)  # noqa: T201
    return code
