"""`dpbench list`: the names that sweep files and options may use; no machine is asked."""

from itertools import product
from typing import Any

from rich.console import Group
from rich.text import Text

from dpbench.cases.names import DTYPES, FAMILIES, METRICS, MODES, UNITS, Data, Family, Size, registered
from dpbench.cases.variants import VariantName
from dpbench.cli.options import Json
from dpbench.cli.terminal import show
from dpbench.errors import ExitCode
from dpbench.report.table import list_of


def vocabulary_json() -> dict[str, Any]:
    return {
        "variants": [{"name": name, "what": what} for name, what in _variants().items()],
        "parameters": _parameters_json(),
        "workloads": [
            {"name": f"{family}/{size}", "what": FAMILIES[family], "unit": UNITS[family]}
            for family, size in product(Family, Size)
        ]
        + [{"name": name, "what": what, "unit": None} for name, what in _registered("workloads").items()],
        "modes": [{"name": name, "what": what} for name, what in MODES.items()],
        "dtypes": [{"name": name, "what": what} for name, what in DTYPES.items()],
        "data": [str(data) for data in Data],
        "metrics": [{"name": name, "what": what} for name, what in METRICS.items()],
    }


def vocabulary_text() -> Group:
    sizes = ", ".join(Size)
    families = {family: f"{what}; items are {UNITS[family]}" for family, what in FAMILIES.items()}
    return Group(
        list_of("variants; or your own package.module:callable", [*_variants().items()]),
        list_of("parameters, in brackets: 'tuned[dispatch=threads,bucket_bytes=1MiB]'", _parameters()),
        list_of(
            f"workloads: family/size with sizes {sizes}; or your own package.module:factory",
            [*families.items(), *_registered("workloads").items()],
        ),
        list_of("modes", [*MODES.items()]),
        list_of("dtypes", [*DTYPES.items()]),
        list_of("metrics", [*METRICS.items()]),
        Text(f"data: {', '.join(Data)}"),
    )


def _variants() -> dict[str, str]:
    return {**{str(name): name.sentence for name in VariantName}, **_registered("variants")}


def _registered(kind: str) -> dict[str, str]:
    points = registered(kind)
    return {name: f"{point.value}, of {point.dist.name if point.dist else '?'}" for name, point in points.items()}


def _parameters_json() -> list[dict[str, Any]]:
    takers: dict[tuple[str, str, str], list[VariantName]] = {}
    for variant in VariantName:
        for name, parameter in variant.parameters.items():
            takers.setdefault((name, parameter.allowed, parameter.sentence), []).append(variant)
    return [
        {"name": name, "variants": variants, "allowed": allowed, "what": what}
        for (name, allowed, what), variants in takers.items()
    ]


def _parameters() -> list[tuple[str, str]]:
    """What every variant takes has one line."""
    return [
        (f"{'VARIANT' if len(takers) > 1 else takers[0]}[{name}=...]", f"{what}: {allowed}")
        for name, takers, allowed, what in (parameter.values() for parameter in _parameters_json())
    ]


def list_names(as_json: Json = False) -> ExitCode:
    """List variants and their parameters, workloads, modes and metrics."""
    show(vocabulary_json() if as_json else vocabulary_text())
    return ExitCode.OK
