"""Every variant, each a row of `VariantName`: name, wrapper, sentence and parameters.

To add a variant, write its wrapper in `dpbench/variants/` and add a row here. `dpbench list`, the options, the tables'
order and the registry of wrappers all read this table.

A variant is written as a name, or as a name with parameters. `VariantId` has one text for each:

    tuned
    tuned[bucket_bytes=1048576,dispatch=threads]     sorted by name, each value in its shortest form
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dpbench.sweep.explain import nearest, one_of
from dpbench.sweep.parameters import DDP_PARAMETERS, TUNED_PARAMETERS, Parameter, Value, shown

_Row = tuple[str, str, str, Mapping[str, Parameter], Mapping[str, Value]]


def _tuned(name: str, sentence: str, **fixed: Value) -> _Row:
    """Return the row of `dpbench.DataParallel` with these fields of its policy fixed."""
    return name, "variant:TUNED", sentence, TUNED_PARAMETERS, fixed


class VariantName(StrEnum):
    """A way to run one training step on several devices.

    A row is: name; ``module:attribute`` of the wrapper in `dpbench.variants`; sentence for `dpbench list`; parameters.
    `fixed` holds the parameters that the name itself sets, `parameters` those that a user may set beside them.
    """

    wrapper: str
    sentence: str
    fixed: Mapping[str, Value]
    parameters: Mapping[str, Parameter]

    def __new__(
        cls,
        name: str,
        wrapper: str = "",
        sentence: str = "",
        parameters: Mapping[str, Parameter] | None = None,
        fixed: Mapping[str, Value] | None = None,
    ) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.wrapper, member.sentence, member.fixed = wrapper, sentence, fixed or {}
        member.parameters = {key: each for key, each in (parameters or {}).items() if key not in member.fixed}
        return member

    SINGLE = "single", "variant:SINGLE", "the plain model on the first device: the single-device baseline"
    TORCH_DP = "torch_dp", "variant:TORCH_DP", "torch.nn.DataParallel, the stock wrapper; needs accelerators"
    NAIVE = "naive", "naive:NAIVE", "the stock algorithm in plain Python, on any devices: new replicas every forward"
    FLOOR = (
        "floor",
        "floor:FLOOR",
        "the plain model on each chunk in turn and one backward: no scheme on shared lanes does less",
    )
    TUNED = _tuned("tuned", "dpbench.DataParallel: cached replicas, coalesced copies, long-lived threads")
    DDP = (
        "ddp",
        "ddp:DDP",
        "torch DistributedDataParallel: one process per device, gloo on CPU and nccl on CUDA",
        DDP_PARAMETERS,
    )
    FSDP = (
        "fsdp",
        "fsdp:FSDP",
        "torch fully_shard (FSDP2): as ddp, but each rank keeps a part of every parameter",
    )
    TUNED_NO_CACHE_REPLICAS = _tuned(
        "tuned_no_cache_replicas", "tuned, but all replicas are built anew every forward", cache_replicas=False
    )
    TUNED_NO_COALESCE = _tuned("tuned_no_coalesce", "tuned, but every tensor is sent alone", coalesce=False)
    TUNED_NO_OVERLAP_BROADCAST = _tuned(
        "tuned_no_overlap_broadcast", "tuned, but parameters are sent on the compute streams", overlap_broadcast=False
    )
    TUNED_NO_OVERLAP_REDUCE = _tuned(
        "tuned_no_overlap_reduce",
        "tuned, but gradients are added after backward, on the compute streams",
        overlap_reduce=False,
    )
    TUNED_NO_OVERLAP_COPIES = _tuned(
        "tuned_no_overlap_copies", "tuned, but inputs and outputs are sent on the compute streams", overlap_copies=False
    )
    TUNED_THREADS = _tuned("tuned_threads", "tuned, always a thread per lane", dispatch="threads")
    TUNED_SEQUENCE = _tuned("tuned_sequence", "tuned, always one lane after the other", dispatch="sequence")
    TUNED_INTERLEAVED = _tuned(
        "tuned_interleaved", "tuned, always all lanes at once, one at a time", dispatch="interleaved"
    )
    TUNED_SKIP_UNCHANGED = _tuned(
        "tuned_skip_unchanged", "tuned, but parameters that did not change are not sent again", skip_unchanged=True
    )
    TUNED_HOST_STAGED = _tuned(
        "tuned_host_staged", "tuned, but copies between devices go through the host", host_staged=True
    )
    TUNED_WITH_LOSS = (
        "tuned_with_loss",
        "variant:TUNED_WITH_LOSS",
        "tuned, but each replica computes its loss, and the outputs stay there; for training only",
        TUNED_PARAMETERS,
    )
    TUNED_STAR = _tuned("tuned_star", "tuned, parameters go from the first device straight to each other", route="star")
    TUNED_CHAIN = _tuned("tuned_chain", "tuned, parameters go from device to device", route="chain")
    TUNED_TREE = _tuned("tuned_tree", "tuned, each device passes parameters on to two others", route="tree")
    TUNED_HOST = _tuned(
        "tuned_host", "tuned, parameters go once to the host, and from there to all devices", route="host"
    )
    TUNED_NCCL = _tuned("tuned_nccl", "tuned, NCCL sends parameters and adds gradients", route="nccl")
    TUNED_SHARES_AUTO = _tuned(
        "tuned_shares_auto", "tuned, with less of the batch for devices that end late", shares="auto"
    )


PER_RANK = frozenset({VariantName.DDP, VariantName.FSDP})
"""The variants with one process per device. A test compares them with the wrappers."""

SCHEMES = tuple(name for name in VariantName if not name.startswith("tuned_") and name is not VariantName.FSDP)
"""The variants compared by default: the data-parallel schemes, without the ablations of the tuned one."""

VARIANT = f"{one_of(SCHEMES)}, {VariantName.FSDP}, or one of the tuned_... that `dpbench list` shows"
_EXAMPLE = "tuned[dispatch=threads,coalesce=false]"
_TEXT = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<parameters>[^\[\]]*)\])?")


class VariantId(str):
    """A variant as text. `values` are those that its `name` and its parameters set.

    Raise ValueError for an unknown name or parameter, a wrong value, or brackets that do not match.
    """

    name: VariantName
    values: Mapping[str, Value]

    def __new__(cls, text: str) -> Self:
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} has wrong brackets; allowed: one pair after the name, as in {_EXAMPLE}")
        word = match["name"].strip()
        if word not in list(VariantName):
            raise ValueError(f"{text!r} is no variant{nearest(word, VariantName)}")
        name = VariantName(word)
        given = dict(sorted(_parameters(name, text, match["parameters"] or "").items()))
        found = super().__new__(cls, _text(name, given))
        found.name, found.values = name, {**name.fixed, **given}
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(strict=True), serialization=core_schema.to_string_ser_schema()
        )

    def with_parameters(self, **values: Value) -> Self:
        """Return the variant with these parameters added to its own, or in their place."""
        own = {key: value for key, value in self.values.items() if key not in self.name.fixed}
        return type(self)(_text(self.name, {**own, **values}))

    @property
    def chooses_dispatch(self) -> bool:
        """Whether the wrapper itself chooses the dispatch, by trying each way."""
        has_dispatch = "dispatch" in self.name.parameters or "dispatch" in self.name.fixed
        return has_dispatch and self.values.get("dispatch", "auto") == "auto"

    @property
    def chooses_route(self) -> bool:
        """Whether the wrapper itself chooses the route, by measuring the links."""
        has_route = "route" in self.name.parameters
        return has_route and self.values.get("route", "auto") == "auto"

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def takes_nccl_route(self) -> bool:
        """Whether NCCL sends the wrapper's weights and adds its gradients."""
        return {**self.name.fixed, **self.values}.get("route") == "nccl"

    @property
    def is_per_rank(self) -> bool:
        """Whether each device has a process of its own."""
        return self.name in PER_RANK

    @property
    def order(self) -> tuple[int, str]:
        """The place in tables: as the names are defined above, then by parameters."""
        return list(VariantName).index(self.name), str(self)


def split_list(text: str) -> list[str]:
    """Split at the commas outside of brackets.

    ``tuned[dispatch=auto,coalesce=true],naive`` has two parts.
    """
    return [part.strip() for part in re.split(r",(?![^\[\]]*\])", text)]


def _text(name: VariantName, given: Mapping[str, Value]) -> str:
    inside = ",".join(f"{key}={shown(value)}" for key, value in given.items())
    return f"{name}[{inside}]" if inside else str(name)


def _parameters(name: VariantName, text: str, inside: str) -> dict[str, Value]:
    """Return the values of ``key=value,key=value``, the part of `text` inside the brackets."""
    given: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        fault = _fault(name, key, given)
        if fault is not None:
            allowed = one_of(name.parameters) or f"{name} without brackets"
            raise ValueError(f"{key!r} in {text!r} {fault}; allowed: {allowed}")
        parameter = name.parameters[key]
        try:
            given[key] = parameter.parse(value)
        except ValueError:
            what = f"{key}={value!r} in {text!r} is not allowed" if equals else f"{key!r} in {text!r} has no value"
            raise ValueError(f"{what}; allowed: {parameter.allowed}") from None
    return given


def _fault(name: VariantName, key: str, given: Mapping[str, Value]) -> str | None:
    """Return why this parameter cannot be set, or None."""
    if key in given:
        return "is given twice"
    if key in name.fixed:
        return f"is set by the name {name}: {key}={shown(name.fixed[key])}"
    return None if key in name.parameters else f"is no parameter of {name}{nearest(key, name.parameters)}"
