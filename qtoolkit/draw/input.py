"""The input as a picture, with what each run takes it for."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from qtoolkit.draw.frame import SMALL, TEXT, heading, start
from qtoolkit.draw.palette import BACKEND, ERROR, GRANULARITY, INK, MUTED
from qtoolkit.execution import Run

ACROSS = 1.5


def photo(
    x: Any,
    runs: Run | Mapping[str, Run],
    labels: Sequence[str] | None = None,
    name: str = "",
    ax: Axes | None = None,
    top: int = 5,
) -> Axes:
    """An input, sample 0, beside the first run's `top` classes and what every run gives them.

    x: an array or tensor; of a tuple, as models give them, the first. x[N,C,H,W] with C of 1 or 3
    is shown as an image, its darkest value black and its brightest white; anything else as grey
    cells. labels: class names. Shares are the softmax of output 0.
    """
    told = {runs.backend: runs} if isinstance(runs, Run) else dict(runs)
    shares = {key: _softmax(np.asarray(run.outputs[0])[0].reshape(-1)) for key, run in told.items()}
    ax = start(ax, 3.4, grid=None)
    ax.imshow(_image(_array(x)), cmap="gray", interpolation="nearest", aspect="equal")
    ax.set_anchor("W")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    first = next(iter(shares.values()))
    classes = np.argsort(-first, kind="stable")[:top]
    side = ax.inset_axes((1.06, 0.02, ACROSS, 0.96))
    _bars(side, classes, shares, labels)
    heading(ax, name or "The input", _caption(shares, labels))
    return ax


def _bars(
    side: Axes,
    classes: NDArray[np.int64],
    shares: Mapping[str, NDArray[np.float64]],
    labels: Sequence[str] | None,
) -> None:
    """One group of bars per class, one bar per run, class names above them."""
    side.set_axis_off()
    thick = min(0.34, 0.6 / len(shares))
    small = SMALL if len(shares) < 3 else SMALL - 1
    for row, cls in enumerate(classes):
        side.text(0, row - 0.06, _name(int(cls), labels), fontsize=TEXT, color=INK, va="bottom")
        for i, (key, share) in enumerate(shares.items()):
            value, y = float(share[cls]), row + thick * (i + 0.5)
            side.barh(y, value, thick * 0.84, color=_color(key), label=key)
            named = f"  {key}" if row == 0 else ""
            side.annotate(f"{100 * value:.0f} %{named}", (value, y), xytext=(4, 0),
                          textcoords="offset points", fontsize=small, color=MUTED,
                          va="center_baseline")  # fmt: skip
    side.set_xlim(0, 1.4 * max(float(share[classes].max()) for share in shares.values()))
    side.set_ylim(len(classes) - 0.25, -0.45)


def _caption(shares: Mapping[str, NDArray[np.float64]], labels: Sequence[str] | None) -> str:
    return "  ·  ".join(f"{key}: {_name(int(np.argmax(s)), labels)}" for key, s in shares.items())


def _color(key: str) -> str:
    return BACKEND.get(key) or GRANULARITY.get(key) or ERROR


def _name(cls: int, labels: Sequence[str] | None) -> str:
    return str(labels[cls]) if labels is not None and cls < len(labels) else f"class {cls}"


def _softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    power = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(power / power.sum(), np.float64)


def _array(x: Any) -> NDArray[Any]:
    first = x[0] if isinstance(x, tuple | list) else x
    return np.asarray(first.detach().cpu() if hasattr(first, "detach") else first)


def _image(x: NDArray[Any]) -> NDArray[Any]:
    sample = x[0] if x.ndim > 1 else x
    low, high = float(sample.min()), float(sample.max())
    scaled = (sample - low) / (high - low or 1.0)
    if sample.ndim == 3 and sample.shape[0] == 3:
        return np.moveaxis(scaled, 0, -1)
    if sample.ndim == 3 and sample.shape[0] == 1:
        return np.asarray(scaled[0])
    flat = scaled.reshape(-1)
    across = int(np.ceil(np.sqrt(flat.size)))
    sheet = np.full(-(-flat.size // across) * across, np.nan)
    sheet[: flat.size] = flat
    return sheet.reshape(-1, across)
