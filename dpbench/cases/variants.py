"""Every variant, each a row of `VariantName`.

A new variant needs a wrapper in `dpbench/variants/` and a row here: `dpbench list`, options, order of tables and the
registry read this table. `VariantId` has one text for each:

    tuned
    tuned[bucket_bytes=1048576,dispatch=threads]     sorted by name, each value in its shortest form
    my_module:wrap[chunks=4]                         the user's own callable; the child alone imports it
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dpbench.cases.names import is_factory, parse_factory, registered
from dpbench.cases.parameters import (
    COMPILE,
    DDP_PARAMETERS,
    TUNED_PARAMETERS,
    Parameter,
    Value,
    parse_value,
    value_text,
)
from dpbench.text.validated import nearest, one_of


class VariantName(StrEnum):
    """A row is: name; ``module:attribute`` of the wrapper in `dpbench.variants`; sentence for `dpbench list`;
    parameters beside `compile`, which all have.
    """

    wrapper: str
    sentence: str
    parameters: Mapping[str, Parameter]

    def __new__(
        cls, name: str, wrapper: str = "", sentence: str = "", parameters: Mapping[str, Parameter] | None = None
    ) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.wrapper, member.sentence, member.parameters = wrapper, sentence, {**(parameters or {}), **COMPILE}
        return member

    SINGLE = "single", "variant:SINGLE", "the plain model on the first device: the single-device baseline"
    TORCH_DP = "torch_dp", "variant:TORCH_DP", "torch.nn.DataParallel, the stock wrapper; needs accelerators"
    NAIVE = "naive", "naive:NAIVE", "the stock algorithm in plain Python, on any devices: new replicas every forward"
    FLOOR = (
        "floor",
        "naive:FLOOR",
        "the plain model on each chunk in turn and one backward: no scheme on shared lanes does less",
    )
    TUNED = (
        "tuned",
        "variant:TUNED",
        "dpbench.DataParallel: cached replicas, coalesced copies, long-lived threads",
        TUNED_PARAMETERS,
    )
    DDP = (
        "ddp",
        "per_rank:DDP",
        "torch DistributedDataParallel: one process per device, gloo on CPU and nccl on CUDA",
        DDP_PARAMETERS,
    )
    FSDP = ("fsdp", "per_rank:FSDP", "torch fully_shard (FSDP2): as ddp, but each rank keeps a part of every parameter")


class OwnName(str):
    parameters: Mapping[str, Parameter] = {}

    @property
    def sentence(self) -> str:
        return "a callable of the user's own code"


PER_RANK = frozenset({VariantName.DDP, VariantName.FSDP})
"""The variants with one process per device; a test compares them with the wrappers."""

SCHEMES = tuple(name for name in VariantName if name is not VariantName.FSDP)

_EXAMPLE = "tuned[dispatch=threads,coalesce=false]"
VARIANT = f"{one_of(VariantName)}, package.module:callable, or one with parameters in brackets, such as {_EXAMPLE}"
_TEXT = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<parameters>[^\[\]]*)\])?")


class VariantId(str):
    """A variant as text; a registered name becomes its callable.

    `arguments` are those of a user's callable. Raise ValueError for an unknown name or parameter, a wrong value, or
    brackets that do not match.
    """

    name: VariantName | OwnName
    values: Mapping[str, Value]
    arguments: Mapping[str, Value]

    def __new__(cls, text: str) -> Self:
        match = _TEXT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} has wrong brackets; allowed: one pair after the name, as in {_EXAMPLE}")
        word, inside = match["name"].strip(), match["parameters"] or ""
        name = _name(word, text)
        values = dict(sorted(_parameters(name, text, inside).items()))
        variant = super().__new__(cls, _text(name, values))
        variant.name = name
        variant.values, variant.arguments = ({}, values) if variant.is_own else (values, {})
        return variant

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(strict=True), serialization=core_schema.to_string_ser_schema()
        )

    def with_parameters(self, **values: Value) -> Self:
        """Parameters of the same name are replaced."""
        return type(self)(_text(self.name, {**self.values, **self.arguments, **values}))

    @property
    def compile_mode(self) -> str | None:
        """The mode of torch.compile; None without, and for a user's variant, which compiles itself."""
        mode = self.values.get("compile")
        return None if mode is None else str(mode)

    @property
    def single(self) -> Self:
        """`single`, compiled as this variant is."""
        mode = self.compile_mode
        return type(self)(_text(VariantName.SINGLE, {} if mode is None else {"compile": mode}))

    @property
    def is_own(self) -> bool:
        """Whether the user's code wraps the model."""
        return isinstance(self.name, OwnName)

    @property
    def chooses_dispatch(self) -> bool:
        """The wrapper tries each dispatch."""
        return "dispatch" in self.name.parameters and self.values.get("dispatch", "auto") == "auto"

    @property
    def chooses_route(self) -> bool:
        """The wrapper measures the links."""
        return "route" in self.name.parameters and self.values.get("route", "auto") == "auto"

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def takes_nccl_route(self) -> bool:
        return self.values.get("route") == "nccl"

    @property
    def has_loss_in_replicas(self) -> bool:
        return self.values.get("loss") == "replicas"

    @property
    def is_per_rank(self) -> bool:
        """Whether each device has its own process; of a user's variant only the child knows."""
        return self.name in PER_RANK

    @property
    def order(self) -> tuple[int, str, str]:
        """As the names are defined above, then the user's, then by parameters; a compiled variant follows its twin."""
        eager = {**self.arguments, **{key: value for key, value in self.values.items() if key != "compile"}}
        return (*VariantName, self.name).index(self.name), _text(self.name, eager), self.compile_mode or ""


def split_list(text: str) -> list[str]:
    """Split at the commas outside of brackets, as in ``tuned[dispatch=auto,coalesce=true],naive``."""
    return [part.strip() for part in re.split(r",(?![^\[\]]*\])", text)]


def _name(word: str, text: str) -> VariantName | OwnName:
    if word in list(VariantName):
        return VariantName(word)
    own_names = registered("variants")
    if word not in own_names and not is_factory(word):
        raise ValueError(f"{text!r} is no variant{nearest(word, [*VariantName, *own_names])}")
    fault = f"{text!r} is no variant; allowed: {VARIANT}"
    return OwnName(parse_factory(own_names[word].value if word in own_names else word, fault))


def _text(name: VariantName | OwnName, values: Mapping[str, Value]) -> str:
    inside = ",".join(f"{key}={value_text(value)}" for key, value in values.items())
    return f"{name}[{inside}]" if inside else str(name)


def _parameters(name: VariantName | OwnName, text: str, inside: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if isinstance(name, OwnName) and key.isidentifier() and equals and key not in values:
            values[key] = parse_value(value)
            continue
        fault = _fault(name, key, values)
        if fault is not None:
            allowed = "key=value" if isinstance(name, OwnName) else one_of(name.parameters)
            raise ValueError(f"{key!r} in {text!r} {fault}; allowed: {allowed}")
        parameter = name.parameters[key]
        try:
            values[key] = parameter.parse(value)
        except ValueError:
            what = f"{key}={value!r} in {text!r} is not allowed" if equals else f"{key!r} in {text!r} has no value"
            raise ValueError(f"{what}; allowed: {parameter.allowed}") from None
    return values


def _fault(name: VariantName | OwnName, key: str, values: Mapping[str, Value]) -> str | None:
    if key in values:
        return "is given twice"
    if isinstance(name, OwnName):
        return "is no argument"
    return None if key in name.parameters else f"is no parameter of {name}{nearest(key, name.parameters)}"
