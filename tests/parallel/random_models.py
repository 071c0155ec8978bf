"""Random models with forwards that do allowed and forbidden things, and note them in a log."""

import threading
from collections import Counter

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 3
TINY = 1e-9


class Log:
    """Notes of forwards and hooks; sums of gradients, which do not depend on the hooks' order."""

    def __init__(self):
        self.facts, self.sums, self.calls, self.kept = [], {}, Counter(), []
        self.lock = threading.Lock()  # the engine has a thread for each CUDA device, and they run hooks at once

    def __deepcopy__(self, memo):
        return self  # a model and its copies share one log

    def hook(self, name):
        def note(gradient):
            # Stock gives an unused weight zeros, and a gradient of zero may differ from zero by rounding.
            if gradient is not None and gradient.abs().max() > TINY:
                value = gradient.detach().cpu().sum()
                with self.lock:
                    self.calls[name] += 1
                    self.sums[name] = self.sums.get(name, 0) + value

        return note

    def take(self):
        """All notes since the last call."""
        notes = [*self.facts, *sorted(self.calls.items())], [self.sums[name] for name in sorted(self.sums)]
        self.facts, self.sums, self.calls = [], {}, Counter()
        return notes


def linear(block, x, tag):
    return functional.linear(x, block.weight, block.bias)


def child(block, x, tag):
    return block.children_[0](x, tag) if len(block.children_) else x


def last_child_in_a_checkpoint(block, x, tag):
    return checkpoint(block.children_[-1], x, tag, use_reentrant=False) if len(block.children_) else x


def last_child_in_a_reentrant_checkpoint(block, x, tag):
    return checkpoint(block.children_[-1], x, tag, use_reentrant=True) if len(block.children_) else x


def child_without_grad(block, x, tag):
    with torch.no_grad():
        seen = child(block, x, tag)
    return x + seen


def buffer_written(block, x, tag):
    with torch.no_grad():
        block.running.mul_(0.5).add_(x.detach().mean(0))
    return x


def buffer_assigned(block, x, tag):
    block.running = block.running + 1
    return x + block.running


def buffer_read(block, x, tag):
    return x + block.running.clone()


def attributes_written(block, x, tag):
    block.log.facts.append(f"had {hasattr(block, 'seen')}")
    block.seen = {"x": x.detach(), "module": block, "method": block.forward}
    block.scale = 5.0
    return x


def attribute_read(block, x, tag):
    return x * block.scale


def gradients_hooked(block, x, tag):
    if torch._C._current_graph_task_id() != -1:
        return x  # a checkpoint recomputes: gradients may have been summed before; stock sums at the end
    for name, tensor in (("weight", block.weight), ("activation", x)):
        if tensor.requires_grad:
            tensor.register_hook(block.log.hook(name))
    return x


def gradient_in_forward(block, x, tag):
    if not (torch.is_grad_enabled() and block.weight.requires_grad):
        return x
    (slope,) = torch.autograd.grad((x.detach() @ block.weight).square().sum(), block.weight, create_graph=True)
    return x + slope.sum(0) / 8


def forward_hook_registered(block, x, tag):
    """The hook is for all later replicas, since they share the base's table of hooks."""
    block.log.facts.append(f"{len(block._forward_hooks)} hooks")
    block.register_forward_hook(lambda module, args, output: output + 1)
    return x


def buffer_registered(block, x, tag):
    block.log.facts.append(f"has a new buffer: {'new' in block._buffers}")
    block.register_buffer("new", x.detach().mean())
    return x


def parameter_registered(block, x, tag):
    block.extra = nn.Parameter(torch.full_like(x[0], 0.5))
    return x * block.extra


def child_deleted(block, x, tag):
    if len(block.children_) > 1:
        del block.children_[1]
    return x


def child_replaced(block, x, tag):
    if len(block.children_):
        block.children_[0] = Unchanged()
    return x


def weight_kept(block, x, tag):
    block.log.kept.append(block.weight)
    return x


def module_kept(block, x, tag):
    block.log.kept.append(block)
    return x


def data_exchanged(block, x, tag):
    block.bias.data = block.bias.data + 1
    return x


def failure(block, x, tag):
    if block.fails_from is not None and int(tag[0]) >= block.fails_from:
        raise KeyError("planned")
    return x


OPERATIONS = {
    operation.__name__: operation
    for operation in (
        *(linear, child, last_child_in_a_checkpoint, last_child_in_a_reentrant_checkpoint, child_without_grad),
        *(buffer_written, buffer_assigned, buffer_read, attributes_written, attribute_read, gradients_hooked),
        *(gradient_in_forward, forward_hook_registered, buffer_registered, parameter_registered, child_deleted),
        *(child_replaced, weight_kept, module_kept, data_exchanged, failure),
    )
}
RARE = {"child_deleted", "child_replaced", "weight_kept", "module_kept", "data_exchanged", "forward_hook_registered"}
PARTS = {
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "attention": lambda: nn.MultiheadAttention(WIDTH, 1, batch_first=True),
    "rnn": lambda: nn.GRU(WIDTH, WIDTH, batch_first=True),
    "sparse": lambda: nn.Embedding(5, WIDTH, sparse=True),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "list": lambda: nn.ParameterList([torch.randn(WIDTH)]),
}


def through(part, x, tag):
    if isinstance(part, nn.BatchNorm1d) and len(x) == 1:
        return x
    if isinstance(part, nn.MultiheadAttention):
        return x + part(*[x.unsqueeze(1)] * 3)[0].squeeze(1)
    if isinstance(part, nn.GRU):
        return part(x.unsqueeze(1))[0].squeeze(1)
    if isinstance(part, nn.Embedding):
        return x + part(tag % 5)
    return x * part[0] if isinstance(part, nn.ParameterList) else part(x)


class Unchanged(nn.Module):
    def forward(self, x, tag):
        return x


class Doubled(nn.Module):
    def forward(self, weight):
        return weight * 2


class Block(nn.Module):
    def __init__(self, draw, depth, log):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 2)
        self.bias = nn.Parameter(torch.randn(WIDTH) / 2)
        self.register_buffer("running", torch.zeros(WIDTH))
        self.parts = nn.ModuleList([PARTS[name]() for name in draw.sample(sorted(PARTS), draw.randint(0, 2))])
        self.children_ = nn.ModuleList([Block(draw, depth - 1, log) for _ in range(draw.randint(0, 2) if depth else 0)])
        self.scale, self.fails_from, self.log = 1.0, None, log
        weights = [1 if name in RARE else 3 for name in OPERATIONS]
        self.names = ["linear", *draw.choices(list(OPERATIONS), weights, k=draw.randint(2, 6))]
        draw.shuffle(self.names)
        self.double()

    def forward(self, x, tag):
        for name in self.names:
            x = OPERATIONS[name](self, x, tag)
        for part in self.parts:
            x = through(part, x, tag)
        return torch.tanh(x)


class Model(nn.Module):
    """Two blocks. The second may use the first's weight, or one of the first's children."""

    def __init__(self, draw, log):
        super().__init__()
        self.first, self.second = Block(draw, 2, log), Block(draw, 1, log)
        if draw.random() < 0.4:
            self.second.weight = self.first.weight
        if draw.random() < 0.3 and len(self.first.children_):
            self.second.children_.append(self.first.children_[0])
        self.gives_all = draw.random() < 0.5

    def forward(self, x, tag):
        inner = self.first(x, tag)
        outer = self.second(inner, tag)
        return {"all": [outer, inner]} if self.gives_all else outer
