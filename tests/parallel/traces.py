"""Traces: changes of weights in a forward or between two steps, and all that shows of them."""

import contextlib
import copy
import functools
import warnings
import weakref

import torch
from torch import nn

from dpbench.parallel import DataParallel, Policy

LANES = 2


def written(weight, log):
    try:
        weight.mul_(2)
    except RuntimeError as error:  # on the first lane, since its weights share memory with the base's
        log.append(str(error))


def written_without_grad(weight, log):
    with torch.no_grad():
        weight.add_(1)


def turned(weight, log):
    with torch.no_grad():
        weight.t_()


def turned_on_the_first_lane(weight, log):
    """The first lane shares the base's version counter, so the counter cannot show the change."""
    if not log:
        turned(weight, log)
    log.append("turned")


def data_turned(weight, log):
    weight.data = weight.data.t()


def left(weight, log):
    with contextlib.suppress(RuntimeError):
        weight.detach_()


def other_data(weight, log):
    weight.data = torch.full_like(weight, 7)


def data_kept_and_exchanged(weight, log):
    """On the last lane: then as many tensors as before use the memory of its weights."""
    log.append(weight.data)
    if len(log) == LANES:
        weight.data = torch.full_like(weight, 7)


@functools.cache
def marked(kind):
    return type("Marked", (kind,), {})


IN_FORWARD = {
    "written": written,
    "written without grad": written_without_grad,
    "turned": turned,
    "turned on the first lane": turned_on_the_first_lane,
    "data turned": data_turned,
    "other data": other_data,
    "data kept and exchanged": data_kept_and_exchanged,
    "detached in place": left,
    "attribute": lambda weight, log: setattr(weight, "mark", 1),
    "class": lambda weight, log: setattr(weight, "__class__", marked(type(weight))),
    "weak reference": lambda weight, log: log.append(weakref.ref(weight)),
    "hook": lambda weight, log: weight.register_hook(lambda _: log.append("hook")),
    "retain_grad": lambda weight, log: weight.retain_grad(),
    "grad": lambda weight, log: setattr(weight, "grad", torch.ones_like(weight)),
    "node's attribute": lambda weight, log: setattr(weight.grad_fn, "mark", 1),
    "node's hook": lambda weight, log: weight.grad_fn.register_hook(lambda *_: log.append("node's hook")),
    "node's prehook": lambda weight, log: weight.grad_fn.register_prehook(lambda *_: log.append("node's prehook")),
    "node's metadata": lambda weight, log: weight.grad_fn.metadata.update(mark=1),
    "kept": lambda weight, log: log.append(weight),
    "view kept": lambda weight, log: log.append(weight.view(-1)),
    "values kept": lambda weight, log: log.append(weight.detach()),
    "data kept": lambda weight, log: log.append(weight.data),
    "graph kept": lambda weight, log: log.append((weight * weight).sum()),
    "graph without values kept": lambda weight, log: log.append((weight + 1).sum()),
}


def forward_between(wrapper, log):
    log.append(wrapper(torch.ones(4, 4)).sum())


def forward_without_grad(wrapper, log):
    with torch.no_grad():
        wrapper(torch.ones(4, 4))


def forward_in_inference_mode(wrapper, log):
    with torch.inference_mode():
        wrapper(torch.ones(4, 4))


def frozen_and_thawed(wrapper, log):
    weight = wrapper.module.weight.requires_grad_(False)
    wrapper(torch.ones(4, 4)).sum().backward()
    weight.requires_grad_()


def data_assigned(wrapper, log):
    wrapper.module.weight.data = wrapper.module.weight.data + 1


def buffer_written(wrapper, log):
    wrapper.module.scale += wrapper.module.bias.sum()


swap_parameters = torch.__future__.set_swap_module_params_on_conversion


def swapped(wrapper, log):
    """Conversions swap parameters from now on."""
    swap_parameters(True)
    wrapper.module.float()


def swapped_once(wrapper, log):
    swapped(wrapper, log)
    swap_parameters(False)


def buffer_cut_off(wrapper, log):
    """The buffer leaves its graph and is a leaf from now on."""
    wrapper.module.scale.detach_().requires_grad_()


BETWEEN_STEPS = {
    "a forward": forward_between,
    "without grad": forward_without_grad,
    "in inference mode": forward_in_inference_mode,
    "fewer lanes": lambda wrapper, log: wrapper(torch.ones(1, 4)).sum().backward(),
    "frozen and thawed": frozen_and_thawed,
    "data assigned": data_assigned,
    "data written": lambda wrapper, log: wrapper.module.weight.data.add_(1),
    "buffer written in the graph": buffer_written,
    "parameter's hook": lambda wrapper, log: wrapper.module.weight.register_hook(lambda _: log.append("hook")),
    "hook after the sum": lambda wrapper, log: wrapper.module.weight.register_post_accumulate_grad_hook(
        lambda _: log.append("hook")
    ),
    "swapped": swapped,
    "swapped once": swapped_once,
    "buffer cut off": buffer_cut_off,
}


class Probe(nn.Module):
    """Notes what it sees of its weight, and applies `touch` to it.

    Values are whole numbers, so that sums are exact.
    """

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(16.0).view(4, 4) - 8)
        self.bias = nn.Parameter(torch.arange(4.0))
        self.register_buffer("scale", torch.ones(4))
        self.touch, self.log, self.seen = None, [], []

    def forward(self, x):
        weight = self.weight
        self.seen.append(seen_of(weight))
        if self.touch:
            self.touch(weight, self.log)
        return nn.functional.linear(x, self.weight, self.bias) * self.scale


def seen_of(weight):
    node = weight.grad_fn
    with warnings.catch_warnings(action="ignore"):  # `.grad` of a non-leaf warns
        has_grad = weight.grad is not None
    return [
        has_grad,
        *(type(weight), weight.shape, weight.stride(), weight.requires_grad, weight.retains_grad, weight._version),
        *(copy.copy(vars(weight)), weight._backward_hooks, weakref.getweakrefcount(weight), weight.tolist()),
        *(node and "mark" in node.metadata, hasattr(node, "mark")),
    ]


TRACES = {
    **{f"in forward: {name}": {"in_forward": touch} for name, touch in IN_FORWARD.items()},
    **{
        f"between steps: {name}": {"between": change, "scale_needs_grad": name.startswith("buffer")}
        for name, change in BETWEEN_STEPS.items()
    },
}


def trace(policy, devices, *, in_forward=None, between=None, scale_needs_grad=False):
    """All that can be seen in four steps and after them, as plain values.

    The second step touches its weights. Between the second and the third `between` is called with the wrapper.
    """
    swap_parameters(False)  # an earlier trace may have left it on; simulated tensors cannot be moved with it
    probe = Probe().to(devices[0])
    if scale_needs_grad:
        probe.scale = probe.bias + 1
    wrapper = DataParallel(probe, devices, policy=policy)
    results = []
    for step in range(4):
        probe.touch = in_forward if step == 1 else None
        if step == 2 and between:
            between(wrapper, probe.log)
        out = wrapper(torch.ones(4, 4) * (step + 1))
        (out * out).sum().backward()
        results += [out.tolist(), *gradients(probe)]
        del out
        with torch.no_grad():
            probe.weight -= 1
    for entry in probe.log:
        if isinstance(entry, torch.Tensor):
            results += [entry.tolist(), *later_gradients(entry, probe)]
    return [results, probe.seen, [entry for entry in probe.log if isinstance(entry, str)]]


def gradients(probe):
    leaves = [probe.weight, probe.bias, *([probe.scale] if probe.scale.is_leaf else [])]
    return [leaf.grad.tolist() for leaf in leaves if leaf.grad is not None]


def later_gradients(kept, probe):
    try:
        if kept.requires_grad:
            kept.sum().backward()
    except RuntimeError as error:  # the graph needs values of the base that a step has changed
        return str(error)
    return gradients(probe)


def check(devices, name):
    """Assert that a trace of `TRACES` is the same with and without caching."""
    cached, uncached = Policy(dispatch="sequence"), Policy(cache_replicas=False, dispatch="sequence")
    try:
        assert trace(cached, devices, **TRACES[name]) == trace(uncached, devices, **TRACES[name])
    finally:
        swap_parameters(False)
