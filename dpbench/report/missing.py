"""Why figures of a table are missing, in as few lines as possible."""

from collections.abc import Iterable, Iterator, Sequence

from dpbench.results.readings import OverRounds
from dpbench.sweep.outside import one_line

Place = tuple[str, str]
"""The variant and the device that a figure is of; '' if it is not of one device."""


def notes_on_missing(figures: Iterable[tuple[str, Place, OverRounds]]) -> Iterator[str]:
    """Yield one line for each reason: ``labels: reason (places)``.

    `figures` has a label, the place and the figure. Places are left out if the reason is that of all of them.
    """
    places_of: dict[str, list[Place]] = {}
    missing: dict[tuple[str, str], list[Place]] = {}
    for label, place, figure in figures:
        places_of.setdefault(label, []).append(place)
        if figure.reason is not None:
            missing.setdefault((label, _why(figure)), []).append(place)
    merged: dict[tuple[str, str], list[str]] = {}
    for (label, why), places in missing.items():
        merged.setdefault((why, _where(places, places_of[label])), []).append(label)
    for (why, where), labels in merged.items():
        yield one_line(f"{', '.join(labels)}: {why}" + (f" ({where})" if where else ""))


def _where(places: Sequence[Place], every: Sequence[Place]) -> str:
    """Return the places: as variants or as devices alone where all places of these are meant, '' for all places."""
    if len(places) == len(every):
        return ""
    for part in (0, 1):
        names = dict.fromkeys(place[part] for place in places)
        if len(places) == sum(place[part] in names for place in every):
            return ", ".join(names)
    return ", ".join(f"{variant} on {device}" for variant, device in places)


def _why(figure: OverRounds) -> str:
    rounds = figure.rounds + figure.rounds_without
    return (
        str(figure.reason) if figure.value is None else f"{figure.rounds_without} of {rounds} rounds: {figure.reason}"
    )
