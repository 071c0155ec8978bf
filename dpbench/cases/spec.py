"""What to measure, from a sweep file or from options of the same names."""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from dpbench.cases.case import MOST_STEPS_PER_SAMPLE
from dpbench.cases.names import Data, Dtype, Mode, format_devices, parse_devices, parse_workload
from dpbench.cases.variants import SCHEMES, VARIANT, VariantId, VariantName, split_list
from dpbench.errors import WrongInputError
from dpbench.text.outside import one_line, read_toml
from dpbench.text.quantities import MOST, parse_duration
from dpbench.text.validated import Frozen, one_of, validated

T = TypeVar("T")


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    for i, value in enumerate(values):
        if value in values[:i]:
            name = format_devices(value) if isinstance(value, tuple) else value
            raise ValueError(f"{name!s} is there twice; allowed: each entry once")
    return values


def _lanes(value: object) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no device list; allowed: text such as cpu*4 or cuda:0+cuda:1")
    return parse_devices(value)


Whole = Annotated[int, Field(strict=True)]
Lanes = Annotated[tuple[str, ...], BeforeValidator(_lanes)]
Workload = Annotated[str, AfterValidator(parse_workload)]
Seconds = Annotated[float, BeforeValidator(parse_duration)]
NonEmpty = Annotated[tuple[T, ...], AfterValidator(_distinct), Field(min_length=1)]

_DURATION = f"seconds as a number, or text such as 90s, 2m, 1.5h; above 0, {MOST}"
_STEPS = f"a whole number from 1 to {MOST_STEPS_PER_SAMPLE}"


def _one(kind: type[StrEnum]) -> dict[str, Any]:
    return {"description": f"one of {one_of(kind)}", "examples": list(kind)}


def _many(kind: type[StrEnum]) -> dict[str, Any]:
    return {"description": f"a list of {one_of(kind)}", "examples": list(kind)}


class Spec(Frozen):
    """A field's alias, such as ``budget``, is its key in a file.

    `batch` is global. Without `devices` the machine's default lanes are used, without `threads` all its cores.
    `budget_s` limits the whole sweep, `case_time_s` the sampling of one case in one round, `timeout_s` the life of one
    child beside its sampling.
    """

    variants: NonEmpty[VariantId] = Field(
        tuple(map(VariantId, SCHEMES)), description=f"a list of {VARIANT}", examples=list(VariantName)
    )
    workloads: NonEmpty[Workload] = Field(("mlp/small",), description="a list of family/size or package.module:factory")
    batch: NonEmpty[Annotated[Whole, Field(ge=1, lt=2**31)]] = Field(
        (64,), description="a list of whole numbers from 1 to 2**31 - 1"
    )
    devices: NonEmpty[Lanes] | None = Field(None, description="a list of texts such as cpu*4, cuda:0*2, cuda:0+cuda:1")
    modes: NonEmpty[Mode] = Field((Mode.TRAIN,), **_many(Mode))
    dtypes: NonEmpty[Dtype] = Field((Dtype.FLOAT32,), **_many(Dtype))
    data: Data = Field(Data.RANDOM, **_one(Data))
    rounds: Whole = Field(5, ge=1, le=1000, description="a whole number from 1 to 1000")
    budget_s: Seconds | None = Field(None, alias="budget", description=_DURATION)
    case_time_s: Seconds = Field(1.0, alias="case_time", description=_DURATION)
    timeout_s: Seconds = Field(120.0, alias="timeout", description=_DURATION)
    threads: Annotated[Whole, Field(ge=1)] | None = Field(None, description="a whole number from 1")
    seed: Whole = Field(0, ge=0, lt=2**63, description="a whole number from 0 to 2**63 - 1")
    steps_per_sample: Whole = Field(1, ge=1, le=MOST_STEPS_PER_SAMPLE, description=_STEPS)
    reference: VariantId | None = Field(None, description=f"one of {VARIANT}", examples=list(VariantName))

    @field_validator("reference")
    @classmethod
    def _reference_is_measured(cls, value: VariantId | None, info: ValidationInfo) -> VariantId | None:
        variants = info.data.get("variants", ())
        if value is not None and variants and value not in variants:
            raise ValueError(f"{str(value)!r} is not among the variants; allowed: {one_of(variants)}")
        return value


_LISTS = ("variants", "workloads", "batch", "devices", "modes", "dtypes")
_WHOLE = ("batch", "rounds", "threads", "seed", "steps_per_sample")
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)


def load_spec(path: Path) -> Spec:
    """Raise WrongInputError."""
    try:
        keys = read_toml(path)
    except OSError as error:
        raise WrongInputError(f"{path}: cannot be read: {error.strerror}; allowed: a TOML file") from error
    except ValueError as error:
        raise WrongInputError(f"{path}: is not TOML: {one_line(str(error))}") from error
    return validated(Spec, keys, lambda key: f"{path}: {key}")


def from_options(options: Mapping[str, str | int | float | None]) -> Spec:
    """Options as text, with commas in lists; None is an option that was not given. Raise WrongInputError."""
    keys = {key: _from_text(key, value) for key, value in options.items() if value is not None}
    return validated(Spec, keys, lambda key: f"--{key.replace('_', '-')}")


def _from_text(key: str, value: str | int | float) -> object:
    if not isinstance(value, str):
        return value
    parts = split_list(value) if key in _LISTS else [value.strip()]
    values = [int(part) if key in _WHOLE and _INTEGER.fullmatch(part) else part for part in parts]
    return values if key in _LISTS else values[0]
