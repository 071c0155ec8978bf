"""How options are declared: those that several commands have, and a dataclass as a group of them."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from dpbench.cases.names import Family, Size, registered
from dpbench.cases.variants import VariantName
from dpbench.errors import WrongInputError

RESULTS = Path("results/runs")
"""Records and pages, unless an option names another."""
_RARE = "Options for maintainers"


def option(text: str, *names: str, is_output: bool = False, completes: str | None = None, is_rare: bool = False) -> Any:
    """`names` are made of the parameter's by default.

    `is_output` says that the value is the path of a written file; a shell completes a list of variants or workloads. A
    rare option has a place at the end of a `Command`'s help.
    """
    return typer.Option(
        *names,
        help=text,
        parser=_option_path if is_output else None,
        metavar="<path>" if is_output else None,
        autocompletion=_completion(completes) if completes else None,
        rich_help_panel=_RARE if is_rare else None,
    )


Json = Annotated[bool, option("Print one JSON object on standard output, and nothing else there.", "--json")]


class Command(TyperCommand):
    """Rare options have a group of their own in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rare = [param for param in self.params if getattr(param, "rich_help_panel", None) == _RARE]
        lines = [record for param in rare if (record := param.get_help_record(ctx))]
        for param in rare:
            param.hidden = True  # type: ignore[attr-defined]
        super().format_options(ctx, formatter)
        if lines:
            with formatter.section(_RARE):
                formatter.write_dl(lines)


def _completion(kind: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        names = [*VariantName] if kind == "variants" else [*map("/".join, product(Family, Size))]
        return [f"{before}{comma}{name}" for name in [*names, *registered(kind)] if name.startswith(last)]

    return complete


_REFERENCE = "Ratios are to this variant; to torch_dp, naive, or the first scheme that has times by default."
Reference = Annotated[str | None, option(_REFERENCE, completes="variants")]
WORKLOAD = typer.Argument(help="Such as convnet/base or my_model:factory.", autocompletion=_completion("workloads"))


def output_path(text: str) -> Path:
    """Raise ValueError for a null byte, and for a folder's ending, such as ``x/``, which `Path` drops. A folder that
    exists is left to the caller.
    """
    if "\0" in text:
        raise ValueError(f"{text!r} cannot be written, because it has a null byte; allowed: a file")
    if text.endswith(("/", "/.")) and not os.path.isdir(text):
        raise ValueError(f"{text!r} cannot be written, because it ends like a folder; allowed: a file")
    return Path(text)


def _option_path(text: str | Path) -> Path:
    try:
        return output_path(str(text))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error


class Form(StrEnum):
    """The form of a comparison on standard output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True, kw_only=True)
class PageOutput:
    """Options of a command that prints its results and writes a page of them."""

    opens: Annotated[bool, option("Open the page in the browser.", "--open")] = False
    as_json: Json = False

    @property
    def form(self) -> Form:
        return Form.JSON if self.as_json else Form.TEXT


@dataclass(frozen=True, kw_only=True)
class Output(PageOutput):
    """Options of a command that prints comparisons. Both JSON and markdown raise WrongInputError."""

    details: Annotated[bool, option("Show devices, phases, exact counts and the ladder too.", "--details")] = False
    as_markdown: Annotated[bool, option("Print the tables as markdown, for an issue on GitHub.", "--markdown")] = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_markdown:
            raise WrongInputError("--markdown: cannot be combined with --json; allowed: one of them")

    @property
    def form(self) -> Form:
        return Form.MARKDOWN if self.as_markdown else super().form


@dataclass(frozen=True, kw_only=True)
class MeasuredOutput(Output):
    """Options of a command that measures cases. `csv` gets a row for each case."""

    allow_different: Annotated[
        bool, option("Compare records of different environments; report the differences.", "--allow-different")
    ] = False
    results: Annotated[Path, option("Folder of records, one file for each run.")] = RESULTS
    csv: Annotated[Path | None, option("Write a row for each case to this file too.", is_output=True)] = None


def grouped(function: Any) -> Any:
    """Give a command an option for each field of its parameters that are dataclasses."""
    groups: dict[str, Any] = {name: hint for name, hint in get_type_hints(function).items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        parameters += inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]

    @wraps(function)
    def command(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return function(**values)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # typer reads both
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return command
