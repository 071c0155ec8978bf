"""How a variant may run on a described machine, if the wrapper itself chooses.

tuned ──> tuned[dispatch=sequence,route=chain]         the wrapper's rules give the route for the machine's links,
          tuned[dispatch=threads,route=chain]          whether it passes buckets on whole, and the ways of dispatch that
          tuned[dispatch=interleaved,route=chain]      it would measure
"""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from dpbench.cases.variants import VariantId
from dpbench.engine.interpret import ending, last_lines
from dpbench.engine.launch import Launcher, launch
from dpbench.engine.messages import AutoChoice, AutoChoices, AutoRequest, DescribedLinks
from dpbench.engine.start import child_command
from dpbench.errors import ReportedError
from dpbench.projection.described.machine import Machine
from dpbench.projection.rules import why_not

CHOOSER = child_command("dpbench.jobs.ways_child")
Ways = Mapping[VariantId, Sequence[VariantId]]
"""The ways of each variant that chooses; any other has itself alone."""
_TIMEOUT_S = 120.0
_STAGED = "staged."


class WaysError(ReportedError):
    """The ending and the last lines of the child that knows the wrapper's rules."""


def ways_of(
    variants: Sequence[VariantId], machines: Sequence[Machine], *, launch: Launcher = launch
) -> tuple[Ways, ...]:
    """The ways on each machine; no child is started if no variant chooses. Raise WaysError."""
    choosing = [
        [each for each in variants if _chooses(each) and why_not(each, machine) is None] for machine in machines
    ]
    if not any(choosing):
        return tuple({} for _ in machines)
    request = AutoRequest(machines=tuple(map(described_links, machines)))
    end = launch(CHOOSER, request.model_dump_json(), _TIMEOUT_S)
    try:
        choices = AutoChoices.model_validate_json(end.record).machines
    except ValidationError:
        reason = f"asking for the wrapper's choices failed: {ending(end)}"
        raise WaysError("\n".join([reason, *last_lines(end.tail)])) from None
    return tuple(
        {variant: _ways(variant, choice, machine) for variant in own}
        for own, choice, machine in zip(choosing, choices, machines, strict=True)
    )


def described_links(machine: Machine) -> DescribedLinks:
    """Devices are peers if no copy between them is staged in the host's memory."""
    return DescribedLinks(
        devices=machine.devices,
        peers=tuple(
            (source, destination)
            for (source, destination), names in machine.routes.items()
            if source is not None and destination is not None and not any(map(_is_staged, names))
        ),
        hops=tuple((*ends, tuple(names)) for ends, names in machine.routes.items()),
        links={name: (link.bandwidth.mid, link.latency.mid) for name, link in machine.links.items()},
    )


def _chooses(variant: VariantId) -> bool:
    return variant.chooses_dispatch or variant.chooses_route


def _ways(variant: VariantId, choice: AutoChoice, machine: Machine) -> list[VariantId]:
    # Two devices have one route, so its name would say nothing.
    route: dict[str, str | bool] = {"route": choice.route} if variant.chooses_route and machine.devices > 2 else {}
    if choice.whole_buckets and {**variant.values, **route}.get("route") == "chain":
        route["whole_buckets"] = True
    if not variant.chooses_dispatch or machine.devices == 1:
        return [variant.with_parameters(**route)]
    # Graphs are launched in sequence, whatever the dispatch.
    dispatches = ["sequence"] if variant.values.get("graphs") else choice.dispatches
    return [variant.with_parameters(dispatch=dispatch, **route) for dispatch in dispatches]


def _is_staged(link: str) -> bool:
    return link.startswith(_STAGED)
