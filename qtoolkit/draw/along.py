"""An axis along the graph: one place per node, shaded and named by the modules they come from."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from qtoolkit.draw.frame import SMALL, axis_labels
from qtoolkit.draw.modules import Block, blocks
from qtoolkit.draw.palette import BAND, MUTED

NAMED = 24


def along(ax: Axes, names: Sequence[str], modules: Sequence[str]) -> None:
    """Shade every other module and name it, or name each node where there are few.

    names and modules: of each place 0, 1, ... of the x axis, in the order of the graph.
    """
    ax.set_xlim(-0.8, len(names) - 0.2)
    if len(names) <= NAMED:
        ax.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
        axis_labels(ax, "", ax.get_ylabel())
        return
    found = blocks(modules)
    for i, block in enumerate(found):
        if i % 2 == 0:
            ax.axvspan(block.first - 0.5, block.last + 0.5, color=BAND, zorder=0, linewidth=0)
    texts, shared = _short_labels([b.label for b in found])
    centres = [(b.first + b.last) / 2 for b in found]
    ax.set_xticks(centres, texts)
    for block, text in zip(found, texts, strict=True):
        if not text:
            _own_name(ax, block, len(names))
    words = f"module {shared}.N, in the order of the graph" if shared else "module"
    axis_labels(ax, words, ax.get_ylabel())


def _own_name(ax: Axes, block: Block, count: int) -> None:
    """Name a block that has no number below the axis, at the end of the row if it stands there."""
    first, last = block.first == 0, block.last == count - 1
    side = "left" if first else "right" if last else "center"
    x = {"left": -0.8, "right": count - 0.2, "center": (block.first + block.last) / 2}[side]
    ax.annotate(
        block.label, (x, 0), xycoords=ax.get_xaxis_transform(), xytext=(0, -22),
        textcoords="offset points", ha=side, va="top", fontsize=SMALL, color=MUTED,
    )  # fmt: skip


def _short_labels(labels: Sequence[str]) -> tuple[list[str], str]:
    """Numbers alone for the family of blocks that has most members; that family's name."""
    families = [label.rpartition(".")[0] for label in labels if "." in label]
    shared = max(set(families), key=families.count) if families else ""
    short = [
        label.rpartition(".")[2] if shared and label.startswith(shared + ".") else ""
        for label in labels
    ]
    return short, shared
