"""One node on two backends: where each errs against the truth, and where they differ."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qtoolkit.comparison import Comparison
from qtoolkit.draw.deviation import cells, default, deviation
from qtoolkit.draw.frame import SMALL, TEXT, heading, joined, ran_on, start
from qtoolkit.draw.palette import ERROR_MAP, MUTED
from qtoolkit.errors import UnknownName


def error_maps(
    a: Comparison, b: Comparison, node: str | None = None, ax: Axes | None = None
) -> Axes:
    """|error| of one node on two backends, both against one truth, and between the two.

    The same scale everywhere: where the backends agree to the bit, the third map is empty. Sample
    0, the largest over the channels. Raises UnknownName if a node was not compared in both.
    """
    name = node or default(a)
    first, second = deviation(a, name), deviation(b, name)
    if first.values.shape != second.values.shape:
        raise UnknownName(f"%{name} has another shape in {b.b.backend}; compare one network")
    between = np.abs(second.values - first.values)
    differ = int(np.count_nonzero(a.b[name] != b.b[name]))
    maps = [np.abs(first.values), np.abs(second.values), between]
    labels = (a.b.backend, b.b.backend, f"{b.b.backend} − {a.b.backend}")
    pictures = [cells(m, "max") for m in maps]
    top = max(float(np.nanmax(p, initial=0.0)) for p, _ in pictures) or 1.0
    ax = start(ax, 3.7, grid=None)
    ax.set_axis_off()
    for i, ((picture, _), label) in enumerate(zip(pictures, labels, strict=True)):
        part = ax.inset_axes((i * 0.325, 0.08, 0.29, 0.92))
        image = part.imshow(
            picture, cmap=ERROR_MAP, vmin=0, vmax=top, interpolation="nearest", gid="map"
        )
        part.set_anchor("N")
        part.set_xticks([])
        part.set_yticks([])
        part.spines[:].set_color("#E4E7EB")
        told = "equal" if i == 2 and not differ else ""
        part.set_xlabel(joined(label, told), fontsize=TEXT, color=MUTED, labelpad=6)
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    bar = figure.colorbar(image, cax=ax.inset_axes((0.975, 0.14, 0.016, 0.84)))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=SMALL, colors=MUTED)
    bar.set_label(f"|error| in {first.unit}", fontsize=TEXT, color=MUTED)
    total = a.b[name].size
    verdict = f"{differ:,} of {total:,} codes differ between the two"
    heading(
        ax,
        f"Where {name} errs on {a.b.backend} and on {b.b.backend}",
        f"{ran_on(a.b)}\n{b.b.backend} on {b.b.device}\nagainst {a.a.backend}; {verdict}; "
        f"{pictures[0][1]}",
    )
    return ax
