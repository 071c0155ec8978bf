"""A user's actions on a model and its wrapper between two forwards, with random choices.

Each action is called with a world (`histories.py`) and a ``random.Random``.
"""

import copy
import gc
import random

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tests.parallel.random_models import WIDTH, Block, Doubled


def loss_of(outputs):
    return sum(output.square().sum() for output in outputs)


def backward(outputs, **options):
    loss = loss_of(outputs)
    if loss.requires_grad:
        loss.backward(**options)


def train(world, draw):
    backward(world.outputs(draw))


def hold(world, draw):
    world.held.append(world.outputs(draw))


def backward_of_held(world, draw):
    if world.held:
        backward(world.held.pop(draw.randrange(len(world.held))), retain_graph=draw.random() < 0.5)


def drop_held(world, draw):
    world.held.clear()
    world.log.kept.clear()


def double_backward(world, draw):
    loss, weights = loss_of(world.outputs(draw)), [p for p in world.model.parameters() if p.requires_grad]
    if loss.requires_grad and weights:
        slopes = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
        backward([slope.to_dense() for slope in slopes if slope is not None and slope.requires_grad])


def step(world, draw):
    for parameter in world.model.parameters():
        if parameter.grad is not None:
            change = torch.tanh(parameter.grad.to_dense()) * 0.01
            if world.held:  # their graphs may go backward only if the old values stay
                parameter.data = parameter.data - change
            else:
                parameter.data.sub_(change)


def no_gradients(world, draw):
    world.model.zero_grad(set_to_none=draw.random() < 0.5)


def without_grad(world, draw):
    with torch.no_grad():
        world.outputs(draw)


def in_inference_mode(world, draw):
    with torch.inference_mode():
        world.outputs(draw)


def in_autocast(world, draw):
    with torch.autocast(torch.device(world.device).type, torch.bfloat16):
        world.outputs(draw)


def bare(world, draw):
    world.outputs(draw, world.model)
    for block in world.blocks:
        block.__dict__.pop("seen", None)


def train_or_not(world, draw):
    draw.choice([world.model, *world.blocks]).train(draw.random() < 0.5)


def freeze(world, draw):
    draw.choice(list(world.model.parameters())).requires_grad_(False)


def thaw(world, draw):
    world.model.requires_grad_(True)


def write(world, draw):
    parameter = draw.choice(list(world.model.parameters()))
    with torch.no_grad():
        parameter.mul_(0.9)


def assign_data(world, draw):
    parameter = draw.choice(list(world.model.parameters()))
    parameter.data = parameter.data * 1.1


def load(world, draw):
    world.model.load_state_dict(
        {name: value * 0.99 if value.is_floating_point() else value for name, value in world.model.state_dict().items()}
    )


def new_parameter(world, draw):
    draw.choice(world.blocks).bias = nn.Parameter(torch.full((WIDTH,), 0.3, device=world.device).double())


def new_buffer(world, draw):
    draw.choice(world.blocks).running = torch.full((WIDTH,), 0.25, device=world.device).double()


def tie(world, draw):
    one, other = draw.sample(world.blocks, 2)
    if "weight" in one._parameters and "weight" in other._parameters:
        one.weight = other.weight


def parametrize_or_not(world, draw):
    block = draw.choice(world.blocks)
    if parametrize.is_parametrized(block):
        parametrize.remove_parametrizations(block, "weight")
    else:
        parametrize.register_parametrization(block, "weight", Doubled())


def add_child(world, draw):
    torch.manual_seed(draw.randrange(1000))
    draw.choice(world.blocks).children_.append(Block(random.Random(draw.random()), 0, world.log).to(world.device))


def delete_child(world, draw):
    children = draw.choice(world.blocks).children_
    if len(children):
        del children[-1]


def set_attribute(world, draw):
    draw.choice(world.blocks).scale = draw.choice([1.0, 0.5])


def shuffle_forward(world, draw):
    draw.shuffle(draw.choice(world.blocks).names)


def fail_from_now_on(world, draw):
    block = draw.choice(world.blocks)
    block.fails_from = draw.choice([0, 1, 3])
    block.names.append("failure")


def stop_failing(world, draw):
    for block in world.blocks:
        block.fails_from = None


def add_hook(world, draw):
    block = draw.choice(world.blocks)
    world.handles.append(block.register_forward_hook(lambda module, args, output: output * 1.01))


def add_parameter_hook(world, draw):
    parameter = draw.choice([p for p in world.model.parameters() if p.is_leaf])
    if parameter.requires_grad:
        world.handles.append(parameter.register_hook(world.log.hook("parameter")))


def remove_hook(world, draw):
    if world.handles:
        world.handles.pop().remove()


def use_kept(world, draw):
    """Use a weight or module that a forward has kept."""
    if world.log.kept:
        kept = draw.choice(world.log.kept)
        if isinstance(kept, Tensor):
            world.values.append(kept)
            backward([kept], retain_graph=True)
        else:
            world.outputs(draw, kept)


def replace_by_a_copy(world, draw):
    if not (world.held or world.handles or world.log.kept):
        world.wrapper = copy.deepcopy(world.wrapper)
        world.model = world.wrapper.module


def collect(world, draw):
    gc.collect()


ACTIONS = [
    *([train] * 5 + [hold] * 4 + [backward_of_held] * 6 + [step] * 5 + [no_gradients] * 2 + [use_kept] * 3),
    *(drop_held, double_backward, without_grad, in_inference_mode, in_autocast, bare, train_or_not, freeze, thaw),
    *(write, assign_data, assign_data, load, new_parameter, new_buffer, tie, parametrize_or_not, add_child),
    *(delete_child, set_attribute, shuffle_forward, fail_from_now_on, stop_failing, add_hook, add_parameter_hook),
    *(remove_hook, replace_by_a_copy, collect),
]
