"""Every variant, defined once: name, wrapper, sentence, fixed parameters. A name with parameters has one text.

tuned                                        a name
tuned[bucket_bytes=1048576,dispatch=threads] a name with parameters, sorted, in their shortest form
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from dpbench.sweep.explain import nearest, one_of
from dpbench.sweep.quantities import parse_bytes

Value = bool | int | float | str


@dataclass(frozen=True)
class Parameter:
    """One parameter of a wrapper. `parse` raises ValueError for a text outside of what is `allowed`."""

    parse: Callable[[str], Value]
    allowed: str
    sentence: str


def _switch(sentence: str) -> Parameter:
    return Parameter(_parse_switch, "true, false", sentence)


def _parse_switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _choice(*names: str, sentence: str) -> Parameter:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return Parameter(parse, one_of(names), sentence)


def _bytes(sentence: str) -> Parameter:
    return Parameter(parse_bytes, "a whole number of bytes from 1, or such as 512KiB, 10MiB", sentence)


def _positive(sentence: str) -> Parameter:
    return Parameter(_parse_positive, "a number above 0, such as 1 or 0.5", sentence)


def _parse_positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(text)
    return value


POLICY_PARAMETERS: Mapping[str, Parameter] = {
    "cache_replicas": _switch("keep the replicas between forwards"),
    "coalesce": _switch("send tensors together in buckets"),
    "bucket_bytes": _bytes("the most bytes of a bucket"),
    "first_bucket_bytes": _bytes("the most bytes of the first bucket"),
    "overlap_broadcast": _switch("send parameters on streams of their own"),
    "overlap_reduce": _switch("add gradients during backward, on streams of their own"),
    "overlap_copies": _switch("send inputs and outputs on streams of their own"),
    "skip_unchanged": _switch("send only the parameters that changed"),
    "host_staged": _switch("send through the host"),
    "dispatch": _choice("threads", "sequence", "auto", sentence="how the replicas are called"),
}
"""The parameters of ``tuned``: the fields of `dpbench.parallel.Policy`, which a test compares."""

DDP_PARAMETERS: Mapping[str, Parameter] = {"bucket_cap_mb": _positive("the most MiB of a bucket of gradients")}
"""The parameters of ``ddp``: arguments of `torch.nn.parallel.DistributedDataParallel`."""


class VariantName(StrEnum):
    """A way to run one training step on several devices.

    `wrapper` is ``module:attribute`` in `dpbench.variants`. `fixed` holds the parameters that the name itself sets;
    `parameters` are those that a user may set beside them.
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
    NAIVE = (
        "naive",
        "naive:NAIVE",
        "the stock algorithm in plain Python, on any devices: rebuilds all replicas every forward",
    )
    FLOOR = (
        "floor",
        "floor:FLOOR",
        "the plain model on each chunk in turn and one backward: no scheme on shared lanes does less",
    )
    TUNED = (
        "tuned",
        "variant:TUNED",
        "dpbench.DataParallel: cached replicas, coalesced copies, long-lived threads",
        POLICY_PARAMETERS,
    )
    DDP = (
        "ddp",
        "variant:DDP",
        "torch DistributedDataParallel, one process per device, gloo on CPU and nccl on CUDA",
        DDP_PARAMETERS,
    )
    TUNED_NO_CACHE_REPLICAS = (
        "tuned_no_cache_replicas",
        "variant:TUNED",
        "tuned, but all replicas are built anew every forward",
        POLICY_PARAMETERS,
        {"cache_replicas": False},
    )
    TUNED_NO_COALESCE = (
        "tuned_no_coalesce",
        "variant:TUNED",
        "tuned, but every tensor travels alone",
        POLICY_PARAMETERS,
        {"coalesce": False},
    )
    TUNED_NO_OVERLAP_BROADCAST = (
        "tuned_no_overlap_broadcast",
        "variant:TUNED",
        "tuned, but parameters travel on the compute streams",
        POLICY_PARAMETERS,
        {"overlap_broadcast": False},
    )
    TUNED_NO_OVERLAP_REDUCE = (
        "tuned_no_overlap_reduce",
        "variant:TUNED",
        "tuned, but gradients are added after backward, on the compute streams",
        POLICY_PARAMETERS,
        {"overlap_reduce": False},
    )
    TUNED_NO_OVERLAP_COPIES = (
        "tuned_no_overlap_copies",
        "variant:TUNED",
        "tuned, but inputs and outputs travel on the compute streams",
        POLICY_PARAMETERS,
        {"overlap_copies": False},
    )
    TUNED_THREADS = (
        "tuned_threads",
        "variant:TUNED",
        "tuned, always a thread per lane",
        POLICY_PARAMETERS,
        {"dispatch": "threads"},
    )
    TUNED_SEQUENCE = (
        "tuned_sequence",
        "variant:TUNED",
        "tuned, always one lane after the other",
        POLICY_PARAMETERS,
        {"dispatch": "sequence"},
    )
    TUNED_SKIP_UNCHANGED = (
        "tuned_skip_unchanged",
        "variant:TUNED",
        "tuned, but parameters that did not change are not sent again",
        POLICY_PARAMETERS,
        {"skip_unchanged": True},
    )
    TUNED_HOST_STAGED = (
        "tuned_host_staged",
        "variant:TUNED",
        "tuned, but copies between devices go through the host",
        POLICY_PARAMETERS,
        {"host_staged": True},
    )


SCHEMES = tuple(name for name in VariantName if not name.fixed)
"""The variants compared by default: every scheme, without the ablations of the tuned one."""

VARIANT = f"{one_of(SCHEMES)}, or one of the tuned_... that `dpbench list` shows"
_TEXT = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<parameters>[^\[\]]*)\])?")


class VariantId(str):
    """A variant's canonical text, with its `name` and the `values` that the name and its parameters set.

    Raises ValueError for an unknown name or parameter, or a wrong value.
    """

    name: VariantName
    values: dict[str, Value]

    def __new__(cls, text: str) -> Self:
        match = _TEXT.fullmatch(text)
        word = match["name"].strip() if match else text
        if match is None or word not in list(VariantName):
            raise ValueError(f"{text!r} is no variant{nearest(word, VariantName)}")
        name = VariantName(word)
        given = dict(sorted(_parameters(name, text, match["parameters"] or "").items()))
        inside = ",".join(f"{key}={_shown(value)}" for key, value in given.items())
        found = super().__new__(cls, f"{name}[{inside}]" if inside else str(name))
        found.name, found.values = name, {**name.fixed, **given}
        return found

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(strict=True), serialization=core_schema.to_string_ser_schema()
        )

    def with_parameters(self, **values: Value) -> Self:
        """Return the variant with these parameters beside, or in place of, its own."""
        own = {key: value for key, value in self.values.items() if key not in self.name.fixed}
        inside = ",".join(f"{key}={_shown(value)}" for key, value in {**own, **values}.items())
        return type(self)(f"{self.name}[{inside}]")

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def order(self) -> tuple[int, str]:
        """The place in tables: as the names are defined above, then by parameters."""
        return list(VariantName).index(self.name), str(self)


def _parameters(name: VariantName, text: str, inside: str) -> dict[str, Value]:
    given: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        parameter = name.parameters.get(key)
        if parameter is None or key in given:
            fault = "is given twice" if key in given else f"is no parameter of {name}{nearest(key, name.parameters)}"
            allowed = one_of(name.parameters) or f"{name} without brackets"
            raise ValueError(f"{key!r} in {text!r} {fault}; allowed: {allowed}")
        try:
            given[key] = parameter.parse(value)
        except (ValueError, OverflowError):
            raise ValueError(f"{key}={value!r} in {text!r} is not allowed; allowed: {parameter.allowed}") from None
    return given


def _shown(value: Value) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value).removesuffix(".0")
        if isinstance(value, float)
        else str(value)
    )


def split_list(text: str) -> list[str]:
    """Split at the commas outside of brackets: ``tuned[dispatch=auto,coalesce=true],naive`` has two parts."""
    return [part.strip() for part in re.split(r",(?![^\[\]]*\])", text)]
