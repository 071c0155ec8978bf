"""A reading over a case's rounds, and why readings are missing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import final

from dpbench.records.readings import Reading
from dpbench.text.outside import one_line

ABSENT = "the record does not have it"


@final
@dataclass(frozen=True)
class OverRounds:
    """`value` is the median of `rounds`, `reason` why `rounds_without` have none. `span_s` is the shortest."""

    value: float | None
    reason: str | None
    rounds: int
    rounds_without: int
    source: str | None = None
    span_s: float | None = None


def over_rounds(readings: Sequence[Reading]) -> OverRounds:
    """One metric, a reading from each round."""
    values = [reading.value for reading in readings if reading.value is not None]
    return OverRounds(
        median(values) if values else None,
        "; ".join(dict.fromkeys(reading.reason for reading in readings if reading.reason is not None)) or None,
        len(values),
        len(readings) - len(values),
        "; ".join(dict.fromkeys(reading.source for reading in readings if reading.source is not None)) or None,
        min((reading.span_s for reading in readings if reading.span_s is not None), default=None),
    )


def over_values(values: Sequence[float | str]) -> OverRounds:
    """One metric, from each round a value or the reason for none."""
    return over_rounds([Reading(reason=value) if isinstance(value, str) else Reading(value=value) for value in values])


FigurePlace = tuple[str, str]
"""Variant and device, '' if the figure is not of one device."""


def notes_on_missing(figures: Iterable[tuple[str, FigurePlace, OverRounds]]) -> Iterator[str]:
    """Lines ``labels: reason (places)``; a reason of all has no places."""
    places_of: dict[str, list[FigurePlace]] = {}
    missing: dict[tuple[str, str], list[FigurePlace]] = {}
    for label, place, figure in figures:
        places_of.setdefault(label, []).append(place)
        if figure.reason is not None:
            rounds = f"{figure.rounds_without} of {figure.rounds + figure.rounds_without} rounds: "
            why = figure.reason if figure.value is None else f"{rounds}{figure.reason}"
            missing.setdefault((label, why), []).append(place)
    merged: dict[tuple[str, str], list[str]] = {}
    for (label, why), places in missing.items():
        merged.setdefault((why, _where(places, places_of[label])), []).append(label)
    for (why, where), labels in merged.items():
        yield one_line(f"{', '.join(labels)}: {why}" + (f" ({where})" if where else ""))


def _where(places: Sequence[FigurePlace], every: Sequence[FigurePlace]) -> str:
    """Variants or devices alone where all of these are meant, '' for all places."""
    if len(places) == len(every):
        return ""
    for part in (0, 1):
        names = dict.fromkeys(place[part] for place in places)
        if len(places) == sum(place[part] in names for place in every):
            return ", ".join(names)
    return ", ".join(f"{variant} on {device}" for variant, device in places)
