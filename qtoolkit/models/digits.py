"""digits-cnn: a small network with depthwise convolutions, trained in seconds on real digits.

It exists so that *accuracy* can be compared. Its weights are cached, since training repeats.
"""

import hashlib
import io
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import torch
from platformdirs import user_cache_dir
from torch import nn

from qtoolkit.models.model import Model

SEED = 0
HELD_OUT = 500
EPOCHS = 30
VERSION = 1  # raise it with any change that trains other weights
Split = tuple[torch.Tensor, torch.Tensor]


def digits_cnn() -> Model:
    """The trained network; 1297 digits train it, 64 of those calibrate it, 500 are held out."""
    train, held_out = data()
    module = network()
    file = Path(user_cache_dir("qtoolkit")) / f"digits-cnn-{VERSION}.npz"
    state = read(file)
    if state is None:
        fit(module, *train)
        write(file, module.state_dict())
    else:
        module.load_state_dict(state)
    images, classes = held_out
    pairs = tuple(((x.unsqueeze(0),), (int(c),)) for x, c in zip(images, classes, strict=True))
    return Model(
        module.eval(),
        pairs[0][0],
        tuple((x.unsqueeze(0),) for x in train[0][:64]),
        tuple(str(i) for i in range(10)),
        tuple((f"digit {i} ({c[0]})", x) for i, (x, c) in enumerate(pairs[:6])),
        pairs,
        "held-out digits of scikit-learn",
        "digits-cnn",
    )


def data() -> tuple[Split, Split]:
    """(training, held out): images float32[N,1,8,8] in -1..1 and classes int64[N]."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(SEED).permutation(len(found.images))
    x = torch.from_numpy((found.images[order] / 8 - 1).astype(np.float32)).unsqueeze(1)
    y = torch.from_numpy(found.target[order].astype(np.int64))
    return (x[HELD_OUT:], y[HELD_OUT:]), (x[:HELD_OUT], y[:HELD_OUT])


def network() -> nn.Module:
    """Two depthwise separable blocks behind a stem, a pool and a linear layer."""

    def block(C: int, O: int, k: int, s: int = 1, groups: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(C, O, k, s, k // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(O), nn.ReLU6()]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return nn.Sequential(
            *block(1, 16, 3),
            *block(16, 16, 3, groups=16),
            *block(16, 32, 1),
            *block(32, 32, 3, 2, groups=32),
            *block(32, 64, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(64, 10),
        )


def fit(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Train in place with Adam; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        module.train()
        optimizer = torch.optim.Adam(module.parameters(), 3e-3)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
                optimizer.step()
        module.eval()


def write(file: Path, state: dict[str, torch.Tensor]) -> None:
    """Store a state dict behind its sha256, whole or not at all; a read-only cache is no error."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in state.items()}
    np.savez(buffer, **arrays)
    content = buffer.getvalue()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(hashlib.sha256(content).digest() + content)
        os.replace(part.name, file)
    except OSError:
        return  # Training again costs seconds.


def read(file: Path) -> dict[str, torch.Tensor] | None:
    """The state dict, or None if the file is missing or not what was written."""
    try:
        stored = file.read_bytes()
    except OSError:
        return None
    digest, content = stored[:32], stored[32:]
    if hashlib.sha256(content).digest() != digest:
        return None
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        return {name: torch.from_numpy(found[name]) for name in found.files}
