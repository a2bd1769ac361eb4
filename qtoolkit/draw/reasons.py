"""Why an operand lies where it does: the chain of steps as a path, the first cause on top."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from qtoolkit.draw.frame import SMALL, TEXT, heading, points_of, start, wrapped
from qtoolkit.draw.palette import BAND, COPY, INK, MUTED, WIRE
from qtoolkit.placement import Placement
from qtoolkit.trace import Chain, Trace

STOP = 0.74  # inches
MOST = 9  # stops of a picture: of a longer chain its first and its last


def why(data: Placement | Trace, node: str, operand: int = -1, ax: Axes | None = None) -> Axes:
    """The steps that fixed an operand (-1: the result), each a stop on the way through the graph.

    Raises UnknownName for a node or operand that was not placed.
    """
    chain = data.why(node, operand)
    assert isinstance(chain, Chain)
    left_out = max(0, len(chain) - MOST)
    shown = [*chain[: MOST // 2], *chain[len(chain) - (MOST - MOST // 2) :]] if left_out else chain
    ax = start(ax, 1.0 + STOP * len(shown), grid=None)
    ax.set_axis_off()
    ax.set_xlim(0, 10)
    ax.set_ylim(len(shown), -0.1)
    for i, step in enumerate(shown):
        last = i == len(shown) - 1
        ax.add_patch(
            FancyBboxPatch(
                (0.05, i + 0.06), 9.9, 0.7, boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=BAND, edgecolor=COPY if last else WIRE,
                linewidth=1.8 if last else 0.8, gid="stop",
            )
        )  # fmt: skip
        ax.text(0.2, i + 0.24, f"%{step.node}", fontsize=TEXT, fontweight="bold", color=INK,
                va="center")  # fmt: skip
        ax.text(9.8, i + 0.24, step.kind, fontsize=SMALL, color=MUTED, va="center", ha="right")
        lines = wrapped(step.reason, points_of(ax)[0] * 0.95)[:2]
        ax.text(0.2, i + 0.4, "\n".join(lines), fontsize=SMALL, color=INK, va="top",
                linespacing=1.2)  # fmt: skip
        if not last:
            ax.add_patch(
                FancyArrowPatch((5, i + 0.77), (5, i + 1.06), arrowstyle="-|>", mutation_scale=9,
                                color=WIRE, linewidth=1.2)
            )  # fmt: skip
    what = f"input {operand}" if operand >= 0 else "the result"
    skipped = f"; {left_out} steps between are left out" if left_out else ""
    heading(ax, f"Why {what} of {node} lies where it does",
            f"{len(chain)} steps, each the cause of the next{skipped}")  # fmt: skip
    return ax
