"""Is a pytest benchmark slower than its baseline, by more than its threshold allows? Pure."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from dpbench.results.record import Environment
from dpbench.stats.rounds import Estimate
from dpbench.sweep.outside import one_line, what_is_wrong

SCHEMA = 1
_MACHINE = ("gpus", "driver", "cuda", "nccl", "torch", "cpu_model", "cores")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


class BaselineError(ValueError):
    """One line on what is wrong with a baseline or a threshold, and what is allowed."""


@dataclass(frozen=True)
class Figures:
    """One benchmark: the median of its rounds and their minimum in seconds, each with an interval."""

    median_s: Estimate
    minimum_s: Estimate
    rounds: int


_FIGURES = TypeAdapter(Figures)


class _Extra(BaseModel):
    dpbench: dict[str, Any] | None = None


class _Benchmark(BaseModel):
    fullname: str
    extra_info: _Extra


class Saved(BaseModel):
    """The part of pytest-benchmark's file that the plugin wrote: every entry named ``dpbench``."""

    machine_info: _Extra
    benchmarks: tuple[_Benchmark, ...]

    @property
    def machine(self) -> dict[str, Any] | None:
        """What `machine_of` returned; None if no `dp_benchmark` was measured."""
        return self.machine_info.dpbench

    def figures(self) -> dict[str, Figures]:
        """Return the figures by test name. Raise BaselineError."""
        saved = {each.fullname: each.extra_info.dpbench for each in self.benchmarks}
        return {name: from_json(fields, name) for name, fields in saved.items() if fields is not None}


@dataclass(frozen=True)
class Threshold:
    """How much each figure may grow, as a share: 0.05 is 5 %, None is no limit."""

    median: float | None = None
    minimum: float | None = None


def parse_threshold(limits: Mapping[str, object]) -> Threshold:
    """Read texts such as ``5%`` by the names of `Threshold`. Raise BaselineError.

    The mean has no threshold: one round on a busy machine moves it.
    """
    shares = {}
    for name, text in limits.items():
        match = _PERCENT.fullmatch(text) if isinstance(text, str) else None
        if name not in Threshold.__dataclass_fields__ or match is None:
            raise BaselineError(
                f"dp_threshold: {name}={text!r}; allowed: median and minimum, each such as '5%' or '2.5%'"
            )
        shares[name] = float(match[1]) / 100
    if not shares:
        raise BaselineError("dp_threshold: has no limit; allowed: median and minimum, each such as '5%' or '2.5%'")
    return Threshold(**shares)


def slower(now: Figures, then: Figures, threshold: Threshold) -> list[str]:
    """Return a line for each figure that grew by more than its threshold and whose intervals do not meet."""
    limits = {"median": threshold.median, "minimum": threshold.minimum}
    return [
        f"{name} is {new.value / old.value:.3g} times the baseline's: {_text(new)} after {_text(old)}; "
        f"allowed: {1 + limit:g} times"
        for (name, limit), new, old in zip(
            limits.items(), (now.median_s, now.minimum_s), (then.median_s, then.minimum_s), strict=True
        )
        if limit is not None and new.value > old.value * (1 + limit) and _low(new) > _high(old)
    ]


def to_json(figures: Figures) -> dict[str, Any]:
    """Return the figures as JSON."""
    return asdict(figures)


def parse_saved(content: Mapping[str, Any]) -> Saved:
    """Read a file of pytest-benchmark. Raise BaselineError."""
    try:
        return Saved.model_validate(content)
    except ValidationError as error:
        raise BaselineError(f"baseline: {what_is_wrong(error)}") from error


def from_json(fields: Mapping[str, Any], name: str) -> Figures:
    """Return the figures that `to_json` wrote; other fields are ignored. Raise BaselineError."""
    try:
        found = _FIGURES.validate_python({key: fields.get(key) for key in Figures.__dataclass_fields__})
    except ValidationError as error:
        raise BaselineError(f"baseline: {one_line(name)}: {what_is_wrong(error)}") from error
    for field, figure in (("median_s", found.median_s), ("minimum_s", found.minimum_s)):
        if not all(isfinite(each) and each > 0 for each in (figure.value, _low(figure), _high(figure))):
            raise BaselineError(f"baseline: {one_line(name)}: {field}: {figure}; allowed: finite seconds above 0")
    return found


def machine_of(environment: Environment) -> dict[str, Any]:
    """Return, as JSON, what must be equal before times are compared."""
    return {"schema": SCHEMA, **environment.model_dump(mode="json", include=set(_MACHINE))}


def refuse_foreign(now: Mapping[str, Any], then: Mapping[str, Any]) -> None:
    """Raise BaselineError for a newer schema, or for another machine, with the fields that differ."""
    schema = then.get("schema")
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise BaselineError(f"baseline: has schema {schema!r}; allowed: 1 to {SCHEMA}")
    differing = [
        f"{name} ({then.get(name)!r} / {now.get(name)!r})" for name in _MACHINE if then.get(name) != now.get(name)
    ]
    if differing:
        raise BaselineError(
            f"baseline: it and this machine differ in {', '.join(differing)}; allowed: a baseline of this machine"
        )


def _low(found: Estimate) -> float:
    return found.value if found.low is None else found.low


def _high(found: Estimate) -> float:
    return found.value if found.high is None else found.high


def _text(found: Estimate) -> str:
    return f"{found.value:.4g} s [{_low(found):.4g}, {_high(found):.4g}]"
