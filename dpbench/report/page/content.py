"""The page's sections in their order. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from dpbench.analysis.answer import headline, winners_in_words
from dpbench.records.record import Environment
from dpbench.report.page.charts import time_charts as times
from dpbench.report.page.charts.device_charts import phases, rounds_along
from dpbench.report.page.charts.time_charts import projections
from dpbench.report.page.elastic_section import elastic_section
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import MOST_SETTINGS, MachineResults, by_environment
from dpbench.report.page.over_commits import History, gate_sections, histories, history_section, newest
from dpbench.report.page.parts import MachinePart, Page, Panel, Section
from dpbench.report.page.plain_tables import MOST_ROWS, devices, environment, links, outcomes, raw_table, words

_MOST_MACHINES = 6
_MOST_HEADLINES = 12
MakePanel = Callable[[MachineResults], Panel | None]


_SECTIONS: tuple[tuple[str, str, tuple[MakePanel, ...]], ...] = (
    ("ratios", "Which is faster, and how sure is that?", (times.ratios,)),
    ("scaling", "How far from the ideal is it?", (times.throughput_here, times.throughput)),
    ("phases", "Where does the time go?", (phases,)),
    ("ablation", "What is each technique worth?", (times.ablation,)),
    ("devices", "What were the devices doing?", (rounds_along, devices)),
    ("links", "What goes over the links?", (links,)),
    ("outcomes", "What failed or was skipped?", (outcomes,)),
    ("environment", "Where was it measured?", (environment,)),
    ("words", "What do the words mean?", (words,)),
)


def page_of(page_inputs: PageInputs, compared: Sequence[MachineResults] | None = None) -> Page:
    """`compared` are the records by machine, if the caller has compared them already."""
    every = compared or by_environment(page_inputs.records, page_inputs.skipped, page_inputs.counts)
    past = histories(every, page_inputs.commit_dates, with_days=page_inputs.with_days)
    machines = newest(every, past)
    table = raw_table(every)
    of_gates, more = gate_sections(page_inputs)
    notes = [*page_inputs.left_out, *_notes(machines), *more]
    if len(machines) < len(every):
        notes.append("The charts are of the newest commit; the first chart and the table at the end have all commits.")
    if table.left_out:
        notes.append(f"The table of all cases has the first {MOST_ROWS:,}; {table.left_out:,} more are left out.")
    parts = [_part(number, machine, past) for number, machine in enumerate(machines[:_MOST_MACHINES])]
    return Page(_title(page_inputs), notes, parts, [*of_gates, *_shared(page_inputs, machines)], table)


def _title(page_inputs: PageInputs) -> str:
    workloads = sorted(
        {
            *(record.case.workload for record in page_inputs.records),
            *(skip.case.workload for skip in page_inputs.skipped),
            *(record.settings.workload for record in page_inputs.elastic),
            *(projection.workload for projection in page_inputs.projections),
        }
    )
    if not workloads:
        return "dpbench: history of the gate" if page_inputs.gates else "dpbench"
    more = f" and {len(workloads) - 2} more" if len(workloads) > 2 else ""
    return f"dpbench: {', '.join(workloads[:2])}{more}"


def _notes(machines: Sequence[MachineResults]) -> Iterator[str]:
    if len(machines) > 1:
        yield (
            "The records are of several machines, versions or commits. They are not compared with each other; each "
            "has its own part."
        )
    if len(machines) > _MOST_MACHINES:
        yield f"Charts show the first {_MOST_MACHINES} of {len(machines)} machines; the table at the end has all."
    for machine in machines:
        comparisons = machine.compared.comparisons
        if len(machine.shown) < len(comparisons):
            yield (
                f"{machine.name}: {len(machine.records):,} records are summarised. Charts of one setting show "
                f"{MOST_SETTINGS} of {len(comparisons):,} settings."
            )
        if thin := sum(row.summary.thin_rounds > 0 for comparison in comparisons for row in comparison.rows):
            cases = "1 case has" if thin == 1 else f"{thin} cases have"
            yield f"{machine.name}: {cases} too few samples to be ranked; the table at the end marks them."
        if machine.is_throttled:
            yield f"{machine.name}: the GPUs' clocks were lowered in some records, so times may not be comparable."


def _part(number: int, machine: MachineResults, past: Mapping[Environment, History]) -> MachinePart:
    history = machine.environment and past.get(machine.environment.machine())
    first = history and history_section(number, history, machine)
    sections = [first] if first else []
    for name, title, makers in _SECTIONS:
        if panels := [panel for make in makers if (panel := make(machine)) is not None]:
            sections.append(Section(f"m{number}-{name}", title, panels))
    main = None if machine.main is None else headline(machine.main)
    other_headlines = [headline(comparison) for comparison in machine.shown if comparison is not machine.main][
        :_MOST_HEADLINES
    ]
    return MachinePart(machine.name, winners_in_words(machine.compared), main, other_headlines, sections)


def _shared(page_inputs: PageInputs, machines: Sequence[MachineResults]) -> list[Section]:
    projected = projections(page_inputs.projections, machines)
    advice = [projection.advice for projection in page_inputs.projections[:_MOST_HEADLINES]]
    sections = [elastic_section(page_inputs.elastic)]
    if projected is not None:
        sections.append(Section("projected", "What would a described machine do?", [projected], advice))
    return [section for section in sections if section is not None]
