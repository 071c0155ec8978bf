"""The page's words: what each variant is, and the terms of charts and tables."""

from collections.abc import Iterator

from dpbench.report.page.machines import MachineResults
from dpbench.report.page.parts import ALL, DataRow, Panel, Shown
from dpbench.sweep.devices import are_shared
from dpbench.sweep.names import FAMILIES, Family

_TERMS = {
    "step": "one forward, loss, backward and update of the parameters; in the mode inference, one forward",
    "reference": "the variant that ratios are to: torch_dp if it has times, else naive, or the one of --reference",
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


def words(found: MachineResults) -> Panel | None:
    """Return the table of words, folded; None without variants that have times."""
    if not found.variants:
        return None
    text = "What this page means by the names in its charts."
    columns = (Shown("word", "word"), Shown("meaning", "meaning"))
    return Panel("words", "Variants, phases and terms", text, columns, {ALL: list(_rows(found))}, is_folded=True)


def _rows(found: MachineResults) -> Iterator[DataRow]:
    for name in dict.fromkeys(variant.name for variant in found.variants):
        yield {"word": str(name), "meaning": name.sentence}
    families = {each.setting.workload.partition("/")[0] for each in found.compared.comparisons}
    for family in (each for each in Family if each in families):
        yield {"word": f"{family}/...", "meaning": f"workload; {FAMILIES[family]}"}
    for word, meaning in (_TERMS | _ideals(found) | _PHASES).items():
        yield {"word": word, "meaning": meaning}


def _ideals(found: MachineResults) -> dict[str, str]:
    kinds = {are_shared(each.setting.devices) for each in found.compared.comparisons}
    ideal = "; or ".join(_SHARED_IDEAL if shared else _IDEAL for shared in sorted(kinds))
    return {"ideal, limit": ideal} if ideal else {}
