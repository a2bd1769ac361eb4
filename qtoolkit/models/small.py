"""Two small models for what large ones hide: writes in place, and weights of odd channels."""

import torch
from torch import nn

from qtoolkit.models.model import Model
from qtoolkit.models.plain import seeded

DEAD, UNDERFLOWED, RAISED, LARGE = 0, 1, 2, 3  # channels of odd-channels


class InPlace(nn.Module):
    """y[N,8,H,W] of x[N,3,H,W]: conv, batch norm, then four writes that a reader cannot tell."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.norm(self.conv(x)))
        y += 0.5
        y.mul_(2)
        clamped: torch.Tensor = y.clamp_(0, 8)
        return clamped


def in_place() -> Model:
    """InPlace with seeded weights for 8 x 8."""
    return seeded("in-place", InPlace, 1, 3, 8, 8)


def odd_channels() -> Model:
    """A conv whose first channels are dead, underflowed, raised for their bias, and large."""

    def make() -> nn.Module:
        conv = nn.Conv2d(3, 8, 3, padding=1)
        assert conv.bias is not None
        with torch.no_grad():
            conv.weight[DEAD], conv.bias[DEAD] = 0.0, 0.0
            conv.weight[UNDERFLOWED], conv.bias[UNDERFLOWED] = 1e-14, 0.0
            conv.weight[RAISED] *= 1e-6
            conv.bias[RAISED] = 5.0
            conv.weight[LARGE] *= 100.0
        return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                             nn.Linear(8, 4))  # fmt: skip

    return seeded("odd-channels", make, 1, 3, 8, 8)
