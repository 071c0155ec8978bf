"""What a script's ranks have in common: collectives by step, phase and line.

    step.backward.all_reduce.count           2        in each step, that is, in the commonest one
    seldom.forward.all_gather.count          3        beyond that, in all counted steps together
    setup.broadcast.size_bytes           4,096        before the first forward

The first `WARM_UP` steps are not counted: DDP arranges its buckets anew after the first one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dpbench.records.count_record import Detail
from dpbench.records.script_record import WARM_UP, Issue, Issues, Part, RankIssues
from dpbench.text.validated import Frozen

_SENT_TO = {"send": "recv", "send_object_list": "recv_object_list"}
_OTHER_END = _SENT_TO | {received: sent for sent, received in _SENT_TO.items()}


class Communication(Frozen):
    """`step` is the commonest step. `seldom` has issues beyond it, `less` those that a step lacks. `steps` counts those
    after `WARM_UP`; `differing` are the numbers of steps unlike the commonest.
    """

    steps: int
    setup: Issues
    step: Issues
    seldom: Issues
    less: Issues
    differing: tuple[int, ...]
    differences: tuple[str, ...]

    def details(self) -> list[Detail]:
        """Each issue's part of each counter."""
        periods = (
            ("setup", self.setup, 1),
            ("step", self.step, 1),
            ("seldom", self.seldom, 1),
            ("seldom", self.less, -1),
        )
        return [detail for name, issues, sign in periods for issue in issues for detail in _details(name, issue, sign)]

    def by_name(self) -> dict[str, int]:
        """Counters that are not 0."""
        counters: Counter[str] = Counter()
        for detail in self.details():
            counters[detail.counter] += detail.value
        return {name: value for name, value in sorted(counters.items()) if value}


def communication(ranks: Sequence[RankIssues]) -> Communication:
    """Each rank has `LEAST_STEPS` steps or more."""
    lines = []
    lengths = [len(issued.steps) for issued in ranks]
    if len(set(lengths)) > 1:
        lines.append(f"the ranks took {' and '.join(map(str, lengths))} steps")
    lines += _differences("set-up", [rank.setup for rank in ranks])
    steps = []
    for number in range(WARM_UP, min(lengths)):
        of_ranks = [rank.steps[number] for rank in ranks]
        lines += _differences(f"step {number + 1}", of_ranks)
        steps.append(_merged(of_ranks))
    step = Counter(steps).most_common(1)[0][0]
    usual, seldom, less = _counter(step), Counter[Issue](), Counter[Issue]()
    for issues in steps:
        seldom += _counter(issues) - usual
        less += usual - _counter(issues)
    return Communication(
        steps=len(steps),
        setup=_merged([rank.setup for rank in ranks]),
        step=step,
        seldom=_issues(seldom),
        less=_issues(less),
        differing=tuple(number for number, issues in enumerate(steps, WARM_UP + 1) if issues != step),
        differences=tuple(lines),
    )


def _details(period: str, issue: Issue, sign: int) -> Iterable[Detail]:
    name = f"{period}.{issue.kind}" if period == "setup" else f"{period}.{issue.part}.{issue.kind}"
    values = {
        "count": 1,
        "size_bytes": issue.size_bytes,
        "unaligned": issue.is_unaligned,
        "exposed": issue.is_exposed,
        "exposed_bytes": issue.size_bytes if issue.is_exposed else 0,
    }
    for counter, value in values.items():
        if value:
            count = sign * value * issue.count
            yield Detail(counter=f"{name}.{counter}", what=issue.what, place=issue.place, value=count)


def _differences(when: str, ranks: Sequence[Issues]) -> Iterable[str]:
    """Collectives that the ranks issued unequally; as many may be sent as received."""
    totals = [_totals(issues) for issues in ranks]
    messages = Counter[str]()
    for total in totals:
        for (_, kind), (count, _) in total.items():
            messages[kind] += count
    matched = {kind for kind in _OTHER_END if messages[kind] == messages[_OTHER_END[kind]]}
    for part, kind in sorted({key for total in totals for key in total}):
        values = [total.get((part, kind), (0, 0)) for total in totals]
        if len(set(values)) > 1 and kind not in matched:
            shown = ", ".join(f"{count} of {size:,} bytes on rank {rank}" for rank, (count, size) in enumerate(values))
            yield f"{when}: {part}.{kind}: {shown}"


def _merged(ranks: Sequence[Issues]) -> Issues:
    """Kind by kind the issues of the rank that has most; of messages between two ranks those of all."""
    totals, merged = [_totals(issues) for issues in ranks], Counter[Issue]()
    for key in {key for total in totals for key in total}:
        most = max(range(len(ranks)), key=lambda rank: totals[rank].get(key, (0, 0)))
        chosen = ranks if key[1] in _OTHER_END else [ranks[most]]
        for issues in chosen:
            merged += _counter(issue for issue in issues if (issue.part, issue.kind) == key)
    return _issues(merged)


def _totals(issues: Issues) -> Mapping[tuple[Part, str], tuple[int, int]]:
    totals: dict[tuple[Part, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for issue in issues:
        count, size = totals[issue.part, issue.kind]
        totals[issue.part, issue.kind] = count + issue.count, size + issue.count * issue.size_bytes
    return totals


def _counter(issues: Iterable[Issue]) -> Counter[Issue]:
    counter: Counter[Issue] = Counter()
    for issue in issues:
        counter[issue.model_copy(update={"count": 1})] += issue.count
    return counter


def _issues(counter: Mapping[Issue, int]) -> Issues:
    issues = (issue.model_copy(update={"count": count}) for issue, count in counter.items())
    return tuple(sorted(issues, key=lambda i: (list(Part).index(i.part), i.place.file, i.place.line, i.kind, i.what)))
