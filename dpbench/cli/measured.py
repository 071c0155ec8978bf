"""Measure a spec, show the comparison, write the page."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from dpbench.analysis.answer import load_warning
from dpbench.analysis.compare_variants import Comparisons, check_environment
from dpbench.analysis.compare_variants import compare as compare_records
from dpbench.cases.counted_cases import plan_beside
from dpbench.cases.plan import Plan
from dpbench.cases.spec import Spec
from dpbench.cli.options import Form, MeasuredOutput, Output
from dpbench.cli.page import finish_page_beside
from dpbench.cli.terminal import complain, show, show_lines, show_markdown, warn
from dpbench.engine.interpret import ChildError
from dpbench.engine.other_load import LoadMeter, OtherLoad
from dpbench.errors import ExitCode, UnusableMachineError, WrongInputError
from dpbench.jobs.count import count_all
from dpbench.jobs.launched.on_all_ranks import Lead
from dpbench.jobs.sweep import machine_for, run_sweep
from dpbench.records.count_record import CountRecord
from dpbench.records.record import Outcome
from dpbench.records.store import Retry, Store, drop_if_empty
from dpbench.report.comparison import comparisons_json, comparisons_markdown, comparisons_text
from dpbench.report.counts_table import counts_json, counts_text
from dpbench.report.progress import progress_bar, waiting
from dpbench.report.rows import FlatRow, Format, RowKind, rows_of, to_bytes
from dpbench.text.files import reason_of, replace_bytes
from dpbench.text.outputs import check_output, check_output_folder


def measure_spec(
    lead: Lead,
    make_path: Callable[[], Path],
    output: MeasuredOutput,
    *,
    retry: Retry | None = None,
    resumes: bool = False,
    with_counts: bool = False,
    inputs: Sequence[Path] = (),
    settles: bool = False,
) -> ExitCode:
    """`make_path` makes the file of records. If it `resumes`, the next call goes on in the same file.

    No output replaces one of the `inputs`. `settles` is as in `jobs.sweep.run`.
    With `with_counts`, details and JSON have exact counts on simulated devices, if there is no accelerator.
    """
    from dpbench.report.page.inputs import PageInputs
    from dpbench.report.page.machines import by_environment

    check_output_folder("results", output.results)
    if output.csv is not None:
        check_output("--csv", output.csv, inputs)
    spec, meter = lead.spec, LoadMeter()
    machine = machine_for(spec)
    load = meter.read()
    if reason := machine.why_unusable(spec.devices):
        raise UnusableMachineError(reason)
    planned = lead.plan(machine)
    output.results.mkdir(parents=True, exist_ok=True)
    store = Store(make_path())
    with store, progress_bar() as progress:  # a store that cannot be opened ends here in one line
        warn(load.warning() if load else [])
        check = None if output.allow_different else check_environment
        swept = run_sweep(spec, planned, store, progress, retry=retry, runner=lead.runner, check=check, settles=settles)
    warn(list(swept.warnings))
    if swept.is_interrupted and not swept.records:
        drop_if_empty(store.path)
        raise KeyboardInterrupt
    compared = compare_records(
        swept.records, planned.skipped, reference=spec.reference, allow_different=output.allow_different
    )
    with_counts = with_counts and (output.details or output.form is Form.JSON)
    with_counts = with_counts and not machine.accelerators and not swept.is_interrupted
    counted = _counted_beside(spec, planned) if with_counts else ()
    show_comparisons(compared, output, counted, swept.other_load)
    page = PageInputs(swept.records, planned.skipped, counted)
    path = store.path.with_suffix(".html")
    machines = by_environment(swept.records, planned.skipped, counted, spec.reference, compared)
    finish_page_beside(page, lambda: path, output, machines)
    if output.csv is not None:
        write_rows(rows_of(swept.records, RowKind.CASES), Format.CSV, output.csv, "--csv")
    if swept.is_interrupted:
        of = f"{len(swept.records)} of {len(planned.cases) * spec.rounds} measurements are kept"
        complain(f"{of}; {'repeat the command to go on' if resumes else f'to see them: dpbench report {store.path}'}")
        raise KeyboardInterrupt
    asked = [record for record in swept.records if record.case.variant in spec.variants]
    measured = any(record.outcome is Outcome.OK for record in asked)
    return ExitCode.OK if measured else ExitCode.NEGATIVE


def show_comparisons(
    compared: Comparisons, output: Output, counted: tuple[CountRecord, ...] = (), load: OtherLoad | None = None
) -> None:
    if output.form is Form.JSON:
        times = comparisons_json(compared)
        of_load = {} if load is None else {"other_load": asdict(load)}
        show({**times, **of_load, "cases": times["cases"] + counts_json(counted)["cases"]})
        return
    warning = load_warning(load.busy_cores, load.cores) if load is not None and load.is_high else None
    show_named_comparisons([("", compared)], output.form, details=output.details, warning=warning)
    if output.form is Form.TEXT and counted:
        show(counts_text(counted, differing=True))


def show_named_comparisons(
    named: Sequence[tuple[str, Comparisons]], form: Form, *, details: bool, warning: str | None = None
) -> None:
    """The name of a machine may be empty."""
    if form is Form.MARKDOWN:
        show_markdown(comparisons_markdown(named))
    elif form is Form.JSON:
        show({"machines": [{"name": name, **comparisons_json(compared)} for name, compared in named]})
    else:
        for name, compared in named:
            show_lines([name] if name else [])
            show(comparisons_text(compared, with_details=details, warning=warning))
        if not details:
            show_lines(["more: --details has phases, devices, counts and the ladder; the page has charts"])


def write_rows(rows: Sequence[FlatRow], form: Format, path: Path, option: str) -> None:
    """Raises WrongInputError with the option's name."""
    content = to_bytes(rows, form)
    try:
        replace_bytes(path, content)
    except OSError as error:
        raise WrongInputError(
            f"{option}: {str(path)!r} cannot be written: {reason_of(error)}; allowed: a file"
        ) from error


def count_planned(planned: Plan, events: Path | None = None) -> tuple[CountRecord, ...]:
    with waiting(f"counting {len(planned.cases)} cases"):
        return count_all(planned.cases, events=events)


def _counted_beside(spec: Spec, planned: Plan) -> tuple[CountRecord, ...]:
    """If counting fails, warn and return none."""
    try:
        return count_planned(plan_beside(spec, [case.devices for case in planned.cases]))
    except ChildError as error:
        warn([str(error)])
        return ()
