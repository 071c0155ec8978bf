"""A small training script of FSDP2, which the planted changes of `communication_plants.toml` edit."""

from itertools import pairwise

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WIDTH = 32

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
layers = [nn.Sequential(nn.Linear(32, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 32)) for _ in range(3)]
model = nn.Sequential(*layers)
for layer in layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=layer is not layers[-1])
fully_shard(model, mesh=mesh, mp_policy=policy)
for layer, following in pairwise(layers):
    layer.set_modules_to_forward_prefetch([following])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):  # noqa: B007  # planted changes read it
    optimizer.zero_grad()
    model.set_requires_gradient_sync(False)
    model(torch.randn(8, 32)).square().mean().backward()
    model.set_requires_gradient_sync(True)
    loss = model(torch.randn(8, 32)).square().mean()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
