"""Small models that capture refuses, one for each reason; what it says of them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from qtoolkit.errors import QtoolkitError
from qtoolkit.program import capture

if TYPE_CHECKING:
    import pandas as pd


class Counter(nn.Module):
    """Counts its calls in a buffer."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


class WritesInput(nn.Module):
    """Overwrites what its caller gave it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1


class WritesPart(nn.Module):
    """Sets a part of a value through a view, and returns the whole."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 0] = 0
        return y


class Branches(nn.Module):
    """Decides by its data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Picks(nn.Module):
    """Gives as many values as happen to be positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0]


def training() -> nn.Module:
    """A batch norm that still learns."""
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()


# what it does -> the model; each is captured in eval mode but for the one that is not.
REFUSED: Mapping[str, Callable[[], nn.Module]] = {
    "is in training mode": training,
    "writes a buffer": Counter,
    "writes its input": WritesInput,
    "overwrites a part of a value": WritesPart,
    "branches on data": Branches,
    "has a shape only data tells": Picks,
}


def refusals() -> "pd.DataFrame":
    """Capture each model of REFUSED; a row for each: what it does, the error and its words."""
    import pandas as pd

    rows = []
    for does, make in REFUSED.items():
        module = make() if make is training else make().eval()
        try:
            capture(module, torch.ones(1, 3, 4, 4))
        except QtoolkitError as why:
            rows.append((does, type(why).__name__, str(why)))
        else:
            rows.append((does, "", "captured"))
    return pd.DataFrame(rows, columns=["a model that", "error", "says"]).set_index("a model that")
