"""Where the time of a run goes: by op, or node by node."""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes

from qtoolkit.draw.frame import SMALL, TEXT, axis_labels, heading, joined, ran_on, start
from qtoolkit.draw.palette import BACKEND, ERROR, INK, MUTED
from qtoolkit.draw.roles import op_text
from qtoolkit.errors import UnknownName
from qtoolkit.execution import Run


@dataclass(frozen=True, slots=True)
class Share:
    """Seconds that one bar stands for, and how many nodes they are of."""

    label: str
    seconds: float
    nodes: int


def timing(run: Run, by: str = "op", top: int = 12, ax: Axes | None = None) -> Axes:
    """Milliseconds of one run by op or by node, the largest first; the rest is one bar.

    One run, kernels bound beforehand, values kept: an impression and not a benchmark.
    """
    shares = by_op(run) if by == "op" else by_node(run) if by == "node" else None
    if shares is None:
        raise UnknownName(f"timing by {by!r}; choose 'op' or 'node'")
    rest = shares[top:]
    if rest:
        other = Share(f"{len(rest)} others", sum(s.seconds for s in rest),
                      sum(s.nodes for s in rest))  # fmt: skip
        shares = (*shares[:top], other)
    total = sum(s.seconds for s in shares) or 1.0
    ax = start(ax, 0.95 + 0.27 * len(shares), grid=None)
    ax.spines[["left", "bottom"]].set_visible(False)
    color = BACKEND.get(run.backend, ERROR)
    bars = ax.barh([s.label for s in shares], [1e3 * s.seconds for s in shares], 0.68, color=color)
    ax.set_ylim(len(shares) - 0.5, -0.6)
    ax.set_xticks([])
    ax.tick_params(axis="y", labelsize=TEXT, labelcolor=INK)
    for bar, share in zip(bars, shares, strict=True):
        count = f"  ·  {share.nodes} nodes" if share.nodes > 1 else ""
        ax.annotate(
            f"{1e3 * share.seconds:.3g} ms  ·  {100 * share.seconds / total:.0f} %{count}",
            (bar.get_width(), bar.get_y() + bar.get_height() / 2),
            xytext=(5, 0), textcoords="offset points", va="center", fontsize=SMALL, color=MUTED,
        )  # fmt: skip
    longest = max(s.seconds for s in shares) if shares else 1.0
    ax.set_xlim(0, 1.38e3 * longest or 1.0)
    axis_labels(ax)
    told = f"{1e3 * total:,.1f} ms in all, one run, every value kept"
    heading(ax, f"Time by {by}", joined(ran_on(run), told))
    return ax


def by_op(run: Run) -> tuple[Share, ...]:
    """Seconds of each op, largest first; convs by kernel size."""
    seconds: dict[str, float] = {}
    nodes: dict[str, int] = {}
    for name, spent in run.seconds.items():
        if name in run.graph:
            label = op_text(run.graph, run.graph[name])
            seconds[label] = seconds.get(label, 0.0) + spent
            nodes[label] = nodes.get(label, 0) + 1
    return _sorted({k: Share(k, s, nodes[k]) for k, s in seconds.items()})


def by_node(run: Run) -> tuple[Share, ...]:
    """Seconds of each node, largest first."""
    return _sorted({n: Share(n, s, 1) for n, s in run.seconds.items() if n in run.graph})


def _sorted(shares: Mapping[str, Share]) -> tuple[Share, ...]:
    return tuple(sorted(shares.values(), key=lambda s: -s.seconds))
