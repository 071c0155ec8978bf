"""What the commands that measure share: measure a spec, show the comparison, write the page."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from dpbench.cli_page import finish_page_beside
from dpbench.cli_shared import Form, form_of, show, show_markdown, unusable, warn
from dpbench.errors import ExitCode, UnusableMachineError
from dpbench.report.comparison_json import comparisons_json
from dpbench.report.comparison_markdown import comparisons_markdown
from dpbench.report.comparison_table import comparisons_text, headlines_text
from dpbench.report.counts_table import counts_json, counts_text
from dpbench.report.page.inputs import PageInputs
from dpbench.report.progress import progress_bar
from dpbench.results.compare import Comparisons
from dpbench.results.compare import compare as compare_records
from dpbench.results.counts import CountRecord
from dpbench.results.record import Outcome
from dpbench.results.run_path import drop_if_empty
from dpbench.results.store import Retry, Store
from dpbench.run.count_all import CountingError, count_all
from dpbench.run.launched.on_all_ranks import Planner
from dpbench.run.run_sweep import machine_for, run_sweep
from dpbench.run.runner import Launcher
from dpbench.sweep.counted_cases import plan_beside
from dpbench.sweep.plan import Plan
from dpbench.sweep.spec import Spec


def measure_spec(
    make_path: Callable[[], Path],
    as_json: bool,
    as_markdown: bool,
    spec: Spec,
    plan: Planner,
    launch: Launcher,
    *,
    allow_different: bool,
    opens: bool,
    retry: Retry | None = None,
    with_counts: bool = False,
) -> ExitCode:
    """Measure a spec and show the comparison.

    With `with_counts` and no accelerator, show exact counts on simulated devices too; as markdown only on the page.
    """
    form = form_of(as_json=as_json, as_markdown=as_markdown)
    machine = machine_for(spec)
    if warnings := unusable(machine):
        raise UnusableMachineError("; ".join(warnings))
    planned = plan(spec, machine)
    store = Store(make_path())
    with store, progress_bar(Console(stderr=True)) as progress:  # a store that cannot be opened ends here in one line
        found = run_sweep(spec, planned, store, progress, retry=retry, launch=launch)
    warn(list(found.warnings))
    if found.is_interrupted and not found.records:
        drop_if_empty(store.path)
        raise KeyboardInterrupt
    compared = compare_records(
        found.records, planned.skipped, reference=spec.reference, allow_different=allow_different
    )
    if form is Form.TEXT:
        show(comparisons_text(compared))
    with_counts = with_counts and not machine.accelerators and not found.is_interrupted
    counted = _counted_beside(spec, planned) if with_counts else ()
    _show_rest(form, compared, counted)
    shown = PageInputs(found.records, planned.skipped, counted)
    finish_page_beside(shown, lambda: store.path.with_suffix(".html"), opens=opens, reference=spec.reference)
    if found.is_interrupted:
        raise KeyboardInterrupt
    measured = any(record.outcome is Outcome.OK for record in found.records)
    return ExitCode.OK if measured else ExitCode.NEGATIVE


def _show_rest(form: Form, compared: Comparisons, counted: tuple[CountRecord, ...]) -> None:
    """Show what follows a terminal's tables of times, or all of the other forms."""
    if form is Form.MARKDOWN:
        show_markdown(comparisons_markdown([("", compared)]))
    elif form is Form.JSON:
        times = comparisons_json(compared)
        show({**times, "cases": times["cases"] + counts_json(counted)["cases"]})
    else:
        if counted:
            show(counts_text(counted))
        if compared.comparisons:
            show(headlines_text(compared))


def count_planned(planned: Plan, events: Path | None = None) -> tuple[CountRecord, ...]:
    with Console(stderr=True).status(f"counting {len(planned.cases)} cases"):
        return count_all(planned.cases, events=events)


def _counted_beside(spec: Spec, planned: Plan) -> tuple[CountRecord, ...]:
    """Return the counts to show beside the plan's times. If counting fails, warn and return none."""
    try:
        return count_planned(plan_beside(spec, [case.devices for case in planned.cases]))
    except CountingError as error:
        warn([str(error)])
        return ()
