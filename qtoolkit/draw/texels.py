"""Where each cell of a small tensor lies, in every representation it has."""

from collections.abc import Sequence
from math import prod

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.tensors import Placed, pack, representations
from qtoolkit.draw.frame import SMALL, heading, start
from qtoolkit.draw.palette import CHANNELS, INK, MUTED, PAPER, WIRE, mix
from qtoolkit.errors import ShapeError
from qtoolkit.graph import DType, TensorType
from qtoolkit.layout import TEXEL, Storage, TensorRepr, nchw

MOST = 400  # cells that can still be read
GAP = 0.35  # between texels, in cells
ACROSS = 46.0  # cells in a line of the picture
EMPTY = -1


def layouts(shape: Sequence[int] = (1, 6, 2, 3), ax: Axes | None = None) -> Axes:
    """Every representation of a tensor of `shape`: buffers as rows of texels, textures as slices.

    A cell bears its row-major number and the colour of its channel; hatched cells only fill up a
    texel. Raises ShapeError for more cells than can be read, or more than four axes.
    """
    kind = TensorType(tuple(shape), DType.FLOAT32)
    if not 0 < prod(shape) <= MOST or len(shape) > 4:
        raise ShapeError(f"{list(shape)}: give up to four axes and 1 to {MOST} cells")
    blocks = [(r, memory_order(kind, r)) for r in representations(kind)]
    heights = [_height(r, cells) for r, cells in blocks]
    total = sum(heights)
    ax = start(ax, 0.6 + 0.17 * total, grid=None)
    ax.set_axis_off()
    ax.set_xlim(0, ACROSS)
    ax.set_ylim(total, 0)
    ax.set_aspect("equal", anchor="NW")
    top = 0.0
    for (r, cells), height in zip(blocks, heights, strict=True):
        _block(ax, top, r, cells, nchw(shape))
        top += height
    sizes = "×".join(map(str, shape))
    heading(
        ax,
        f"Where the cells of a {sizes} tensor lie",
        "Boxes of four are texels, read at once. A cell bears its row-major number, its colour is "
        "its channel; hatched cells fill up. Buffers run on from line to line; of a texture each "
        "slice is shown, depth from left to right.",
    )
    return ax


def memory_order(kind: TensorType, r: TensorRepr) -> NDArray[np.int64]:
    """Row-major numbers of the cells as they lie in memory: [texels, 4] of a buffer, else
    [depth, height, width, 4]; -1 where a cell only fills up.
    """
    numbers = np.arange(1, kind.numel + 1, dtype=np.float32).reshape(kind.sizes)
    placed = Placed("", kind, r)
    packed = pack(numbers, placed).astype(np.int64) - 1
    if not placed.texture:
        return packed.reshape(-1, TEXEL)
    width, height, depth = placed.extents
    return packed.reshape(depth, height, width, TEXEL)


def _per_line() -> int:
    return int(ACROSS // (TEXEL + GAP))


def _height(r: TensorRepr, cells: NDArray[np.int64]) -> float:
    if r.storage is Storage.BUFFER:
        return 1.7 + 1.25 * -(-len(cells) // _per_line())
    depth, height, width, _ = cells.shape
    per_line = max(1, int(ACROSS // (width * (TEXEL + GAP) + 1)))
    return float(1.7 + -(-depth // per_line) * (height * 1.15 + 0.8))


def _block(
    ax: Axes, top: float, r: TensorRepr, cells: NDArray[np.int64], sizes: Sequence[int]
) -> None:
    ax.text(0, top + 0.75, str(r), fontsize=SMALL, fontweight="bold", color=INK, va="center",
            gid="representation")  # fmt: skip
    if r.storage is Storage.BUFFER:
        for i, texel in enumerate(cells):
            x, y = i % _per_line() * (TEXEL + GAP), i // _per_line() * 1.25
            _texel(ax, x, top + 1.45 + y, texel, sizes)
        return
    depth, height, width, _ = cells.shape
    across = width * (TEXEL + GAP) + 1
    per_line = max(1, int(ACROSS // across))
    for z in range(depth):
        x0 = z % per_line * across
        y0 = top + 1.45 + z // per_line * (height * 1.15 + 0.8)
        for y in range(height):
            for x in range(width):
                _texel(ax, x0 + x * (TEXEL + GAP), y0 + y * 1.15, cells[z, y, x], sizes)
        ax.text(x0, y0 + height * 1.15 + 0.22, f"slice {z}", fontsize=6, color=MUTED,
                va="center")  # fmt: skip


def _texel(ax: Axes, x: float, y: float, cells: NDArray[np.int64], sizes: Sequence[int]) -> None:
    _, C, H, W = sizes
    for i, number in enumerate(cells):
        if number == EMPTY:
            ax.add_patch(Rectangle((x + i, y), 1, 1, facecolor=PAPER, edgecolor=WIRE, linewidth=0,
                                   hatch="//////", gid="fill"))  # fmt: skip
            continue
        channel = int(number) // (H * W) % C
        face = mix(CHANNELS[channel % len(CHANNELS)], PAPER, 0.45)
        ax.add_patch(Rectangle((x + i, y), 1, 1, facecolor=face, linewidth=0, gid="cell"))
        ax.text(x + i + 0.5, y + 0.52, str(number), fontsize=5.5, color=INK, ha="center",
                va="center_baseline")  # fmt: skip
    ax.add_patch(Rectangle((x, y), TEXEL, 1, facecolor="none", edgecolor=WIRE, linewidth=0.8))
