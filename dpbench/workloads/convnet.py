"""The ResNet layout with batch norm (He et al., arXiv:1512.03385): `base` is ResNet-50, `large` ResNet-101."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD

from dpbench.cases.names import UNITS, Data, Family, Size
from dpbench.workloads import digits
from dpbench.workloads.workload import Batch, Workload

EXPANSION = 4


@dataclass(frozen=True)
class ConvnetSize:
    """`blocks` per stage, `width` channels in the stem, images of 3 x `side` x `side`."""

    blocks: tuple[int, ...]
    width: int
    side: int
    classes: int


# Small images have at least 4 x 4 positions in the last stage, so that batch norm works on a chunk of one item.
SIZES = {
    Size.TINY: ConvnetSize(blocks=(1, 1), width=8, side=32, classes=10),
    Size.SMALL: ConvnetSize(blocks=(2, 2, 2), width=32, side=64, classes=100),
    Size.BASE: ConvnetSize(blocks=(3, 4, 6, 3), width=64, side=224, classes=1000),
    Size.LARGE: ConvnetSize(blocks=(3, 4, 23, 3), width=64, side=224, classes=1000),
}


def workload(size: Size, data: Data) -> Workload:
    spec = SIZES[size]
    draw = _digits if data is Data.DIGITS else _random
    return Workload(
        model=partial(ResNet, spec),
        batch=partial(draw, spec),
        loss=functional.cross_entropy,
        optimizer=partial(SGD, lr=0.05),
        unit=UNITS[Family.CONVNET],
    )


def _conv(n_in: int, n_out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(n_in, n_out, kernel, stride=stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """The 3x3 convolution has the stride, as in torchvision's ResNet-50."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        n_out = width * EXPANSION
        self.conv1, self.bn1 = _conv(n_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _conv(width, n_out, 1), nn.BatchNorm2d(n_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(_conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        return functional.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """From images, shape (batch, 3, side, side), to logits, shape (batch, classes)."""

    def __init__(self, size: ConvnetSize) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(3, size.width, 7, 2), nn.BatchNorm2d(size.width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages, channels = [], size.width
        for i, blocks in enumerate(size.blocks):
            width = size.width * 2**i
            stages.append(_stage(channels, width, blocks, stride=1 if i == 0 else 2))
            channels = width * EXPANSION
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(channels, size.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(functional.relu(self.bn1(self.conv1(images))))
        return self.fc(self.stages(x).mean((2, 3)))


def _stage(n_in: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(n_in, width, stride)
    return nn.Sequential(first, *(Bottleneck(width * EXPANSION, width, 1) for _ in range(blocks - 1)))


def _random(spec: ConvnetSize, size: int, generator: torch.Generator) -> Batch:
    images = torch.randn(size, 3, spec.side, spec.side, generator=generator)
    return Batch((images,), torch.randint(spec.classes, (size,), generator=generator))


def _digits(spec: ConvnetSize, size: int, generator: torch.Generator) -> Batch:
    images, labels = digits.draw(size, generator)
    grey = (images / (digits.LEVELS - 1)).unsqueeze(1)
    scaled = functional.interpolate(grey, size=(spec.side, spec.side), mode="bilinear")
    return Batch((scaled.repeat(1, 3, 1, 1),), labels)
