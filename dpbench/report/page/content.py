"""The page's sections in their order: from what was read to what is shown, and the page's words. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from dpbench.analysis.answer import Headline, headline
from dpbench.cases.devices import are_shared
from dpbench.cases.names import FAMILIES, Family
from dpbench.cases.variants import VariantId
from dpbench.gate.history import machine_of
from dpbench.records.record import Environment
from dpbench.report.page.charts.devices import (
    clock_along,
    device_memory,
    device_use,
    host_memory,
    nvlink_bytes,
    pcie_bytes,
    phases,
    power_along,
    step_times_along,
    use_along,
)
from dpbench.report.page.charts.links import link_matrix
from dpbench.report.page.charts.projected import projections
from dpbench.report.page.charts.times import (
    ablation,
    efficiency,
    ratios,
    ratios_to_fastest,
    throughput,
    throughput_here,
)
from dpbench.report.page.elastic_section import elastic_section
from dpbench.report.page.history.gates import gate_sections
from dpbench.report.page.history.records import History, histories, history_section, newest
from dpbench.report.page.inputs import PageInputs
from dpbench.report.page.machines import MOST_SETTINGS, MachineResults, by_machine
from dpbench.report.page.parts import ALL, DataRow, MachinePart, Page, Panel, Section
from dpbench.report.page.tables import MOST_ROWS, environment, outcomes, raw_table

_TERMS = {
    "step": "one forward, loss, backward and update of the parameters; in the mode inference, one forward",
    "reference": "the variant that ratios are to: that of --reference, else torch_dp, naive or the first scheme",
    "round": "one fresh process for each variant; its time is the median of its samples",
    "95 % interval": "how far the figure may be off, from the spread between rounds; two variants are compared round "
    "by round",
    "not decided": "the interval of the ratio of two variants contains 1, so either may be the faster one",
    "lane": "one of the devices that a variant uses, such as cuda:1; lanes of one device share it, as cpu*2 does",
    "lag": "how much later than the fastest rank a rank ends its step",
}
_IDEAL = "one device's throughput with its share of the batch, times the number of devices"
_SHARED_IDEAL = "one device's throughput with the whole batch, because the lanes share one device"
_PHASES = {
    "scatter": "the batch is divided, and each part is sent to its device",
    "replicate": "parameters and buffers are sent to the other devices",
    "parallel_apply": "all devices compute their parts of the forward",
    "gather": "the outputs are sent to one device",
    "reduce": "the gradients of all devices are sent and added",
    "optimiser": "the step of the optimizer, which changes the parameters",
    "collectives": "operations of all processes together, such as the sum of gradients in ddp",
}


def words(machine_results: MachineResults) -> Panel | None:
    """Return the table of words, folded; None without variants that have times."""
    if not machine_results.variants:
        return None
    text = "What this page means by the names in its charts."
    columns = {"word": "word", "meaning": "meaning"}
    return Panel(
        "words", "Variants, phases and terms", text, columns, {ALL: list(_rows(machine_results))}, is_folded=True
    )


def _rows(machine_results: MachineResults) -> Iterator[DataRow]:
    for name in dict.fromkeys(variant.name for variant in machine_results.variants):
        yield {"word": str(name), "meaning": name.sentence}
    families = {comparison.setting.workload.partition("/")[0] for comparison in machine_results.compared.comparisons}
    for family in (each for each in Family if each in families):
        yield {"word": f"{family}/...", "meaning": f"workload; {FAMILIES[family]}"}
    for word, meaning in (_TERMS | _ideals(machine_results) | _PHASES).items():
        yield {"word": word, "meaning": meaning}


def _ideals(machine_results: MachineResults) -> dict[str, str]:
    kinds = {are_shared(comparison.setting.devices) for comparison in machine_results.compared.comparisons}
    ideal = "; or ".join(_SHARED_IDEAL if shared else _IDEAL for shared in sorted(kinds))
    return {"ideal, limit": ideal} if ideal else {}


_MOST_MACHINES = 6
_MOST_HEADLINES = 12
MakePanel = Callable[[MachineResults], Panel | None]
_SECTIONS: tuple[tuple[str, str, tuple[MakePanel, ...]], ...] = (
    ("ratios", "Which is faster, and how sure is that?", (ratios, ratios_to_fastest)),
    ("scaling", "How far from the ideal is it?", (throughput_here, throughput, efficiency)),
    ("phases", "Where does the time go?", (phases,)),
    ("ablation", "What is each technique worth?", (ablation,)),
    ("memory", "What does it cost in memory?", (device_memory, host_memory)),
    ("devices", "What were the devices doing?", (device_use, step_times_along, use_along, clock_along, power_along)),
    ("links", "What goes over the links?", (link_matrix, nvlink_bytes, pcie_bytes)),
    ("outcomes", "What failed or was skipped?", (outcomes,)),
    ("environment", "Where was it measured?", (environment,)),
    ("words", "What do the words mean?", (words,)),
)


def page_of(page_inputs: PageInputs, reference: VariantId | None = None) -> Page:
    """Return the page. Without a `reference`, ratios are to torch_dp, naive, or the first scheme that has times."""
    every = by_machine(page_inputs.records, page_inputs.skipped, page_inputs.counts, reference)
    past = histories(every, page_inputs.commit_dates, with_days=page_inputs.with_days)
    machines = newest(every, past)
    shown = machines[:_MOST_MACHINES]
    table = raw_table(every)
    of_gates, more = gate_sections(page_inputs)
    notes = [*page_inputs.left_out, *_notes(machines), *more]
    if len(machines) < len(every):
        notes.append("The charts are of the newest commit; the first chart and the table at the end have all commits.")
    if table.left_out:
        notes.append(f"The table of all cases has the first {MOST_ROWS:,}; {table.left_out:,} more are left out.")
    parts = [_part(each, number, _first_section(number, each, past)) for number, each in enumerate(shown)]
    return Page(_title(page_inputs), notes, parts, [*of_gates, *_shared(page_inputs, machines)], table)


def _first_section(number: int, machine_results: MachineResults, past: Mapping[Environment, History]) -> Section | None:
    if machine_results.environment is None:
        return None
    history = past.get(machine_of(machine_results.environment))
    return None if history is None else history_section(number, history, machine_results)


def _title(page_inputs: PageInputs) -> str:
    measured = {record.case.workload for record in page_inputs.records} | {
        skip.case.workload for skip in page_inputs.skipped
    }
    measured |= {record.settings.workload for record in page_inputs.elastic}
    workloads = sorted(measured | {projection.workload for projection in page_inputs.projections})
    if not workloads:
        return "dpbench: history of the gate" if page_inputs.gates else "dpbench"
    more = f" and {len(workloads) - 2} more" if len(workloads) > 2 else ""
    return f"dpbench: {', '.join(workloads[:2])}{more}"


def _notes(machines: Sequence[MachineResults]) -> Iterable[str]:
    if len(machines) > 1:
        yield (
            "The records are of several machines, versions or commits. They are not compared with each other; each "
            "has its own part."
        )
    if len(machines) > _MOST_MACHINES:
        yield f"Charts show the first {_MOST_MACHINES} of {len(machines)} machines; the table at the end has all."
    for machine in machines:
        if len(machine.shown) < len(machine.compared.comparisons):
            yield (
                f"{machine.name}: {len(machine.records):,} records are summarised. Charts of one setting show "
                f"{MOST_SETTINGS} of {len(machine.compared.comparisons):,} settings."
            )
        if thin := sum(
            row.summary.thin_rounds > 0 for comparison in machine.compared.comparisons for row in comparison.rows
        ):
            cases = "1 case has" if thin == 1 else f"{thin} cases have"
            yield f"{machine.name}: {cases} too few samples to be ranked; the table at the end marks them."
        if machine.is_throttled:
            yield f"{machine.name}: the GPUs' clocks were lowered in some records, so times may not be comparable."


def _part(machine_results: MachineResults, number: int, first: Section | None) -> MachinePart:
    sections = [] if first is None else [first]
    for name, title, makers in _SECTIONS:
        panels = [panel for make in makers if (panel := make(machine_results)) is not None]
        if panels:
            sections.append(Section(f"m{number}-{name}", title, panels))
    main = None if machine_results.main is None else headline(machine_results.main)
    others = [headline(each) for each in machine_results.shown if each is not machine_results.main][:_MOST_HEADLINES]
    return MachinePart(machine_results.name, _summary(machine_results, main), main, others, sections)


def _summary(machine_results: MachineResults, main: Headline | None) -> str:
    """Return one sentence on all settings; the answer itself if there is one setting."""
    if main is None:
        return "No setting has records."
    if len(machine_results.compared.comparisons) == 1:
        return main.answer
    winners = [
        winner for comparison in machine_results.compared.comparisons if (winner := comparison.winner) is not None
    ]
    alone = sum(winner.is_slower_than_one_device for winner in winners)
    if alone == len(winners) > 0:
        return f"In all {alone} settings one device alone is faster than every scheme on several."
    wins = Counter(str(winner.best.case.variant) for winner in winners if not winner.rivals)
    undecided = sum(bool(winner.rivals) for winner in winners)
    parts = [f"{name} in {count}" for name, count in wins.most_common()]
    text = f"Of {len(machine_results.compared.comparisons):,} settings, the fastest scheme is {', '.join(parts)}"
    if not parts:
        return f"In none of {undecided:,} settings is one scheme the fastest for sure."
    text += f"; not decided in {undecided}." if undecided else "."
    return f"{text} In {alone} settings one device alone is faster than every scheme on several." if alone else text


def _shared(page_inputs: PageInputs, machines: Sequence[MachineResults]) -> list[Section]:
    projected = projections(page_inputs.projections, machines)
    advice = [each.advice for each in page_inputs.projections[:_MOST_HEADLINES]]
    sections = [elastic_section(page_inputs.elastic)]
    if projected is not None:
        sections.append(Section("projected", "What would a described machine do?", [projected], advice))
    return [section for section in sections if section is not None]
