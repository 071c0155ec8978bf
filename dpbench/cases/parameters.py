"""The parameters that variants take in brackets, and how their texts are read and written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dpbench.text.quantities import parse_bytes
from dpbench.text.validated import one_of

Value = bool | int | float | str

_MOST_MEBIBYTES = 2**20
_MOST_MICRO_BATCHES = 1024


@dataclass(frozen=True)
class Parameter:
    """`parse` raises ValueError if a text is not `allowed`."""

    parse: Callable[[str], Value]
    allowed: str
    sentence: str


def value_text(value: Value) -> str:
    """The shortest text that `parse` reads as this value."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def parse_value(text: str) -> Value:
    """Return true, false, a number, or the text itself."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text, text)


def _choice(*names: str, sentence: str) -> Parameter:
    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return Parameter(parse, one_of(names), sentence)


def _switch(sentence: str) -> Parameter:
    names = {"true": True, "false": False}

    def parse(text: str) -> bool:
        if text not in names:
            raise ValueError(text)
        return names[text]

    return Parameter(parse, one_of(names), sentence)


def _bytes(sentence: str) -> Parameter:
    return Parameter(parse_bytes, "a whole number of bytes from 1, or text such as 512KiB, 10MiB", sentence)


def _mebibytes(sentence: str) -> Parameter:
    def parse(text: str) -> float:
        value = float(text)
        if not 0 < value <= _MOST_MEBIBYTES:
            raise ValueError(text)
        return value

    return Parameter(parse, f"a number of MiB above 0, at most {_MOST_MEBIBYTES}, such as 1 or 0.5", sentence)


def _micro_batches(sentence: str) -> Parameter:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= _MOST_MICRO_BATCHES):
            raise ValueError(text)
        return int(text)

    return Parameter(parse, f"a whole number from 1 to {_MOST_MICRO_BATCHES}", sentence)


_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
COMPILE: Mapping[str, Parameter] = {"compile": _choice(*_MODES, sentence="run the model by torch.compile in this mode")}
"""Every variant takes it; `supports.py` says which cannot run so."""

POLICY_PARAMETERS: Mapping[str, Parameter] = {
    "cache_replicas": _switch("keep the replicas between forwards"),
    "coalesce": _switch("send tensors together in buckets"),
    "bucket_bytes": _bytes("the largest size of a bucket"),
    "first_bucket_bytes": _bytes("the largest size of the first bucket"),
    "overlap_broadcast": _switch("send parameters on streams of their own"),
    "overlap_reduce": _switch("add gradients during backward, on streams of their own"),
    "overlap_copies": _switch("send inputs and outputs on streams of their own"),
    "skip_unchanged": _switch("send only the parameters that changed"),
    "graphs": _switch("launch each lane's forward and backward as a CUDA graph"),
    "check_graphs": _switch("compare the first graphs of each kind of step with eager steps"),
    "whole_buckets": _switch("pass buckets on whole, also over slow links"),
    "host_staged": _switch("send through the host"),
    "dispatch": _choice("threads", "sequence", "auto", sentence="how the replicas are called"),
    "route": _choice("auto", "star", "chain", "nccl", sentence="which lane sends parameters to which"),
}
"""The fields of `dpbench.parallel.Policy` but `shares`; a test compares them."""

TUNED_PARAMETERS: Mapping[str, Parameter] = {
    **POLICY_PARAMETERS,
    "accumulate": _micro_batches("how many micro-batches a step has; all but the last run under accumulate()"),
    "loss": _choice(
        "outputs", "replicas", sentence="compute the loss on the gathered outputs, or in each replica; for training"
    ),
}

DDP_ARGUMENTS: Mapping[str, Parameter] = {
    "bucket_cap_mb": _mebibytes("the largest size of a bucket of gradients, in MiB"),
    "gradient_as_bucket_view": _switch("gradients are views of the buckets"),
    "static_graph": _switch("every step uses the same parameters"),
}
"""Arguments of `torch.nn.parallel.DistributedDataParallel`; a test compares them."""

DDP_PARAMETERS: Mapping[str, Parameter] = {
    **DDP_ARGUMENTS,
    "accumulate": _micro_batches("how many micro-batches a step has; all but the last run under no_sync"),
    "hook": _choice("none", "fp16", "bf16", sentence="the type in which gradients are sent"),
    "sync_batchnorm": _switch("batch norm takes the statistics of all ranks"),
}
