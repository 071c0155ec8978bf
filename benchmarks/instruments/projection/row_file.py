"""The published tables: `rows/*.toml`, read strictly. A wrong value is one line with file, key and value."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dpbench.errors import WrongInputError
from dpbench.text.outside import one_line, read_toml
from dpbench.text.validated import what_is_wrong

ROWS = Path(__file__).parent / "rows"
ENOUGH = 4
"""From this `spec` on a row's run is described well enough for a claim."""
Text = Annotated[str, Field(min_length=3)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Spec = Annotated[int, Field(ge=1, le=5)]


class Data(StrEnum):
    """Where a batch is when the step begins.

    LOADER: in host memory. HOME: too, and it goes to device 0 as a whole before it is cut. DEVICE: on its device.
    """

    LOADER = "loader"
    HOME = "home"
    DEVICE = "device"


class RowFileError(WrongInputError):
    """One line with the file, the key, the value and what is allowed."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Case(_Strict):
    """`devices` are the first ones of `machine`, all if None. `measured_ms` is None until the prediction is committed.

    `spec` and `why_not` are the table's, unless the case has its own.
    """

    machine: Text
    variant: Literal["torch_dp", "ddp"]
    devices: Annotated[int, Field(ge=2)] | None = None
    loader_items_per_s: Positive | None = None
    measured_ms: Positive | None = None
    spec: Spec | None = None
    why_not: Text | None = None

    @model_validator(mode="after")
    def _has_reason(self) -> Self:
        return _with_reason(self, self.spec, self.why_not)


class Series(_Strict):
    """`one_device_ms` calibrates. `items` is the batch of each device. Without `optimiser`, the published time ends
    with the backward. `one_device_from` is the table that `one_device_ms` was taken from, if it is another.
    """

    model: Text
    workload: Text
    items: Annotated[int, Field(ge=1)]
    one_device_ms: Positive | None = None
    one_device_from: Text | None = None
    broadcast_buffers: bool = True
    bucket_mib: Positive = 25.0
    optimiser: bool = True
    cases: Annotated[list[Case], Field(min_length=1)]


class Table(_Strict):
    """`spec` says how completely the run is described, 5 is complete; below 4, `why_not` says what is missing. `math`
    is a name for `formats_of`. `ahead` is whether the host begins a step before the devices end the last one. `remark`
    is the reason for an error.
    """

    title: Text
    source: Text
    address: Annotated[str, Field(pattern=r"^https://\S+$")]
    spec: Spec
    why_not: Text | None = None
    math: Literal["default", "float32", "tf32"]
    ahead: bool
    ahead_because: Text
    has_foreach: bool
    data: Annotated[Data, Field(strict=False)]
    remark: Text | None = None
    series: Annotated[list[Series], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_reason(self) -> Self:
        return _with_reason(self, self.spec, self.why_not)

    def why_not_claimed(self, series: Series, case: Case) -> str | None:
        """Why a case is in the table of results and in no claim, None if it is in both."""
        if (case.spec or self.spec) < ENOUGH:
            return case.why_not or self.why_not
        return None if series.one_device_ms is not None else "no step of one device is published"


_Model = TypeVar("_Model", bound=_Strict)


def _with_reason(model: _Model, spec: int | None, why_not: str | None) -> _Model:
    if spec is not None and (spec < ENOUGH) != (why_not is not None):
        raise ValueError(f"spec = {spec}: below {ENOUGH} it needs why_not, from {ENOUGH} on it must not have it")
    return model


def load_table(path: Path) -> Table:
    """Raise RowFileError."""
    try:
        return Table.model_validate(read_toml(path))
    except OSError as error:
        raise RowFileError(one_line(f"{path.name}: cannot be read: {error.strerror}")) from error
    except ValidationError as error:
        raise RowFileError(f"{path.name}: {what_is_wrong(error)}") from error
    except ValueError as error:
        raise RowFileError(one_line(f"{path.name}: is not TOML: {error}")) from error


def load_tables() -> dict[str, Table]:
    """By the names of their files."""
    return {path.stem: load_table(path) for path in sorted(ROWS.glob("*.toml"))}
