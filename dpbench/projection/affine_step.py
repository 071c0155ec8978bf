"""A step whose FLOPs and bytes are lines over the batch, in columns, and its file.

Pure: numpy, without torch. The file is JSON, compressed by gzip.
"""

import gzip
import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpbench.results.files import replace_bytes
from dpbench.results.recording import ModelFacts

FORMAT = "dpbench.step"
VERSION = 1
KINDS = ("Operator", "Copy", "Wait", "HostWait", "HostCall", "GradientReady")
QUANTITIES = ("flops", "read_bytes", "written_bytes", "size_bytes")
_INDICES = (
    "kind",
    "phase",
    "name",
    "node",
    "thread",
    "device",
    "source",
    "destination",
    "stream",
    "parameter",
    "is_launched",
    "reference_starts",
    "references",
)
_HEAD = ("devices", "batches", "stream_devices", "texts", "not_affine", "model")
_MOST_BYTES = 1 << 30
Indices = NDArray[np.int64]
Line = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AffineStep:
    """The events of a step at any global batch, in columns; event i has the id i.

    `kind` is a position in KINDS. `phase`, `name` and `node` are positions in `texts`. -1 means that the kind lacks the
    field, or, for `source` and `destination` of a copy, the host. Stream s is on the device ``stream_devices[s]``.

    `flops`, `read_bytes`, `written_bytes` and `size_bytes` have rows ``(constant, per item of the global batch)``.
    Event i reads what the events ``references[reference_starts[i]:reference_starts[i + 1]]`` wrote, or, if it is a
    wait, waits for them. Events before the step are left out. `not_affine` names operators that are not on their line.
    """

    devices: int
    batches: tuple[int, ...]
    stream_devices: tuple[int, ...]
    texts: tuple[str, ...]
    model: ModelFacts | None
    not_affine: tuple[str, ...]
    kind: Indices
    phase: Indices
    name: Indices
    node: Indices
    thread: Indices
    device: Indices
    source: Indices
    destination: Indices
    stream: Indices
    parameter: Indices
    is_launched: Indices
    reference_starts: Indices
    references: Indices
    flops: Line
    read_bytes: Line
    written_bytes: Line
    size_bytes: Line

    def __len__(self) -> int:
        return len(self.kind)

    def at(self, quantity: str, batch: int) -> NDArray[np.float64]:
        """Return one number for each event: `flops`, or bytes, at this global batch."""
        line: Line = getattr(self, quantity)
        return line[:, 0] + line[:, 1] * batch

    def write(self, path: Path) -> None:
        """Write the file. Raise OSError and leave an old file as it was if that fails."""
        head = {name: getattr(self, name) for name in _HEAD if name != "model"}
        content = {
            "format": FORMAT,
            "version": VERSION,
            **head,
            "model": None if self.model is None else asdict(self.model),
            "indices": {name: getattr(self, name).tolist() for name in _INDICES},
            "lines": {name: _compact(getattr(self, name)) for name in QUANTITIES},
        }
        text = json.dumps(content, separators=(",", ":"))
        replace_bytes(path, gzip.compress(text.encode(), compresslevel=6, mtime=0))

    @classmethod
    def read(cls, path: Path) -> "AffineStep":
        """Return the step in a file that `write` made.

        Raise ValueError, with the path and the reason, for any other content, and OSError.
        """
        try:
            unpacker = zlib.decompressobj(wbits=31)
            raw = unpacker.decompress(path.read_bytes(), _MOST_BYTES)
            if not unpacker.eof or unpacker.unused_data:
                raise ValueError("not one complete gzip file of at most 1 GiB")
            return _step(json.loads(raw))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError, zlib.error) as error:
            raise ValueError(f"{path}: not a {FORMAT} file of version {VERSION}: {error}") from None


def _compact(line: Line) -> list[list[Any]]:
    """Return both columns; a whole number is an integer, which is shorter."""
    return [[int(v) if v.is_integer() else v for v in column] for column in line.T.tolist()]


def _step(content: Any) -> AffineStep:
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise ValueError("another format or version")
    if content.keys() != {"format", "version", "indices", "lines", *_HEAD}:
        raise ValueError(f"its fields are {', '.join(map(str, content))}")
    indices, lines = content["indices"], content["lines"]
    if indices.keys() != set(_INDICES) or lines.keys() != set(QUANTITIES):
        raise ValueError("its columns are not those of this version")
    columns: dict[str, Any] = {name: _indices(name, values) for name, values in indices.items()}
    columns |= {name: _line(name, values) for name, values in lines.items()}
    head: dict[str, Any] = {name: content[name] for name in _HEAD}
    for name in ("batches", "stream_devices"):
        head[name] = tuple(_indices(name, head[name]).tolist())
    for name in ("texts", "not_affine"):
        if not isinstance(head[name], list) or not all(isinstance(text, str) for text in head[name]):
            raise ValueError(f"{name} is not a list of texts")
        head[name] = tuple(head[name])
    if type(head["devices"]) is not int or head["devices"] < 1:
        raise ValueError(f"devices is {head['devices']!r}")
    if head["model"] is not None:
        head["model"] = _model(head["model"])
    step = AffineStep(**head, **columns)
    _check(step)
    return step


def _model(values: Any) -> ModelFacts:
    sizes = tuple(_indices("parameter_sizes", values["parameter_sizes"]).tolist())
    if any(type(value) is not int for name, value in values.items() if name != "parameter_sizes"):
        raise ValueError("model has a field that is not an integer")
    return ModelFacts(**{**values, "parameter_sizes": sizes})


def _indices(name: str, values: Any) -> Indices:
    found = np.array(values if values else np.empty(0, np.int64))
    if not isinstance(values, list) or found.dtype != np.int64 or found.ndim != 1:
        raise ValueError(f"{name} is not a list of integers")
    return found


def _line(name: str, values: Any) -> Line:
    found = np.array(values)
    if found.dtype.kind not in "if" or found.ndim != 2 or len(found) != 2 or not np.isfinite(found).all():
        raise ValueError(f"{name} is not two lists of numbers")
    return np.ascontiguousarray(found.astype(np.float64).T)


def _check(step: AffineStep) -> None:
    """Raise ValueError if a column has another length, or a number that refers to nothing."""
    number, streams, texts = len(step.kind), len(step.stream_devices), len(step.texts)
    limits = {
        "kind": (0, len(KINDS)),
        "phase": (0, texts),
        "name": (-1, texts),
        "node": (-1, texts),
        "thread": (0, number + step.devices + 1),
        "device": (-1, step.devices),
        "source": (-1, step.devices),
        "destination": (-1, step.devices),
        "stream": (-1, streams),
        "parameter": (-1, 1 << 31),
        "is_launched": (0, 2),
    }
    for name, (least, above) in limits.items():
        column: Indices = getattr(step, name)
        if len(column) != number or (number and (column.min() < least or column.max() >= above)):
            raise ValueError(f"{name} has a wrong length or a number outside {least} to {above - 1}")
    if any(len(getattr(step, name)) != number for name in QUANTITIES):
        raise ValueError("a line has a wrong length")
    starts, references = step.reference_starts, step.references
    if len(starts) != number + 1 or starts[0] != 0 or starts[-1] != len(references) or (np.diff(starts) < 0).any():
        raise ValueError("reference_starts do not divide the references")
    owners = np.repeat(np.arange(number), np.diff(starts))
    if (references < 0).any() or (references >= owners).any():
        raise ValueError("an event refers to itself or a later one")
