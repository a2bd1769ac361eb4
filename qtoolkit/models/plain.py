"""MobileNetV2, ResNet-18, an MLP in plain torch, seeded weights: structure and speed only."""

from collections.abc import Callable

import torch
from torch import nn

from qtoolkit.models.model import Model

CLASSES = 1000


def seeded(name: str, make: Callable[[], nn.Module], *shape: int, seed: int = 0) -> Model:
    """A Model of seeded weights; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = make().eval()
        example = torch.randn(shape)
    return Model(module, (example,), name=name)


class Residual(nn.Module):
    """body(x) + skip(x), then an activation."""

    def __init__(self, body: nn.Module, skip: nn.Module, act: nn.Module) -> None:
        super().__init__()
        self.body, self.skip, self.act = body, skip, act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.act(self.body(x) + self.skip(x))
        return y


def conv(C: int, O: int, k: int = 1, s: int = 1, groups: int = 1) -> list[nn.Module]:
    """A conv without bias and its batch norm."""
    return [nn.Conv2d(C, O, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(O)]


def inverted(C: int, O: int, s: int, t: int) -> nn.Module:
    """MobileNetV2's block: expand t times, depthwise, project; residual where shapes allow."""
    hidden = C * t
    expand = [] if t == 1 else [*conv(C, hidden), nn.ReLU6(inplace=True)]
    depthwise = [*conv(hidden, hidden, 3, s, hidden), nn.ReLU6(inplace=True)]
    body = nn.Sequential(*expand, *depthwise, *conv(hidden, O))
    return Residual(body, nn.Identity(), nn.Identity()) if s == 1 and C == O else body


def mobilenet_v2() -> Model:
    """MobileNetV2 at width 1.0 for 224 x 224. Source: Sandler et al. 2018 (arXiv:1801.04381)."""

    def make() -> nn.Module:
        layers: list[nn.Module] = [*conv(3, 32, 3, 2), nn.ReLU6(inplace=True)]
        C = 32
        for t, O, n, s in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for i in range(n):
                layers.append(inverted(C, O, s if i == 0 else 1, t))
                C = O
        layers += [*conv(320, 1280), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, CLASSES))

    return seeded("mobilenet-v2", make, 1, 3, 224, 224)


def resnet18() -> Model:
    """ResNet-18 for 224 x 224. Source: He et al. 2015 (arXiv:1512.03385)."""

    def block(C: int, O: int, s: int) -> nn.Module:
        body = nn.Sequential(*conv(C, O, 3, s), nn.ReLU(inplace=True), *conv(O, O, 3))
        skip = nn.Identity() if s == 1 and C == O else nn.Sequential(*conv(C, O, 1, s))
        return Residual(body, skip, nn.ReLU(inplace=True))

    def make() -> nn.Module:
        stem = [*conv(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        widths = ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
        blocks = [b for C, O, s in widths for b in (block(C, O, s), block(O, O, 1))]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)]
        return nn.Sequential(*stem, *blocks, *head)

    return seeded("resnet18", make, 1, 3, 224, 224)


def mlp() -> Model:
    """Three linear layers with relu between: 64 -> 128 -> 128 -> 10."""

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
        )

    return seeded("mlp", make, 1, 64)
