"""A small training script of DDP, which the planted changes of `communication_plants.toml` edit."""

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPTIONS = {"bucket_cap_mb": 0.002, "gradient_as_bucket_view": True, "broadcast_buffers": False}

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.ReLU())]
plain = nn.Sequential(*layers, nn.BatchNorm1d(16), nn.Linear(16, 4))
model = DistributedDataParallel(plain, **OPTIONS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):  # noqa: B007  # planted changes read it
    optimizer.zero_grad()
    with model.no_sync():
        model(torch.randn(8, 16)).square().mean().backward()
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    metrics = torch.stack([loss.detach(), loss.detach().sqrt(), loss.detach().exp(), loss.detach() + 1])
    work = dist.all_reduce(metrics, async_op=True)
    with torch.no_grad():
        accuracy = plain(torch.randn(8, 16)).mean(0)
    work.wait()
dist.destroy_process_group()
