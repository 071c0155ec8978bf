"""How options are declared: those that several commands have, and a dataclass as a group of them."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

from dpbench.cases.names import Family, Size, registered
from dpbench.cases.variants import VariantName
from dpbench.errors import WrongInputError

T = TypeVar("T")

RESULTS = Path("results/runs")
"""Records and pages, unless an option names another."""
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Details = Annotated[bool, typer.Option("--details", help="Show devices, phases, exact counts and the ladder too.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as markdown, for an issue on GitHub.")]
AllowDifferent = Annotated[
    bool, typer.Option("--allow-different", help="Compare records of different environments; report the differences.")
]


_RARE = "Options for maintainers"


def option(text: str, *names: str, is_output: bool = False, completes: str | None = None, is_rare: bool = False) -> Any:
    """`names` are made of the parameter's by default.

    `is_output` says that the value is the path of a written file; a shell completes a list of variants or workloads. A
    rare option has a place at the end of a `Command`'s help.
    """
    panel = _RARE if is_rare else None
    if is_output:
        return typer.Option(*names, help=text, parser=_option_path, metavar="<path>", rich_help_panel=panel)
    complete = _completion(completes) if completes else None
    return typer.Option(*names, help=text, autocompletion=complete, rich_help_panel=panel)


class Command(TyperCommand):
    """Rare options have a group of their own in its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        every = self.params
        rare = [param for param in every if getattr(param, "rich_help_panel", None) == _RARE]
        self.params = [param for param in every if param not in rare]
        super().format_options(ctx, formatter)
        self.params = every
        with formatter.section(_RARE):
            formatter.write_dl([record for param in rare if (record := param.get_help_record(ctx))])


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


def _option_path(given: str | Path) -> Path:
    try:
        return output_path(str(given))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error


def example(text: str) -> str:
    """The end of a command's help."""
    return f"Example:\n\n    {text}"


class Form(StrEnum):
    """The form of a comparison on standard output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True, kw_only=True)
class PageOutput:
    """Options of a command that prints its results and writes a page of them."""

    opens: Open = False
    as_json: Json = False

    @property
    def form(self) -> Form:
        return Form.JSON if self.as_json else Form.TEXT


@dataclass(frozen=True, kw_only=True)
class Output(PageOutput):
    """Options of a command that prints comparisons. Both JSON and markdown raise WrongInputError."""

    details: Details = False
    as_markdown: Markdown = False

    def __post_init__(self) -> None:
        if self.as_json and self.as_markdown:
            raise WrongInputError("--markdown: cannot be combined with --json; allowed: one of them")

    @property
    def form(self) -> Form:
        return Form.MARKDOWN if self.as_markdown else super().form


@dataclass(frozen=True, kw_only=True)
class MeasuredOutput(Output):
    """Options of a command that measures cases. `csv` gets a row for each case."""

    allow_different: AllowDifferent = False
    results: Annotated[Path, typer.Option(help="Folder of records, one file for each run.")] = RESULTS
    csv: Annotated[Path | None, option("Write a row for each case to this file too.", is_output=True)] = None


def grouped(function: Callable[..., T]) -> Callable[..., T]:
    """Give a command an option for each field of its parameters that are dataclasses."""
    groups: dict[str, Any] = {name: hint for name, hint in get_type_hints(function).items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        parameters += inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]

    @wraps(function)
    def command(**values: Any) -> T:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return function(**values)

    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # typer reads both
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return command
