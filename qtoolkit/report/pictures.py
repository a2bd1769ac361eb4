"""The figures of report.html, each an image inside the page with words for who cannot see it."""

import base64
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from qtoolkit.backends import DEVICES, DeviceChoice
from qtoolkit.comparison import compare
from qtoolkit.errors import UnknownName
from qtoolkit.execution import execute
from qtoolkit.exploration import Exploration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# CSS pixels per inch: the usual 8 inches fill the column of the page.
SHOWN = 120
# Dots per inch: sharp on dense screens.
DRAWN = 200


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as a data: address, its words, and its width in CSS pixels."""

    source: str
    alt: str
    width: int


def pictures(e: Exploration) -> dict[str, Picture]:
    """Every figure for which the exploration holds data, by the name the page knows it by."""
    drawn = {**_layers(e), **_placed(e), **(_runs(e) if e.images else {})}
    return {name: _picture(ax) for name, ax in drawn.items()}


def _layers(e: Exploration) -> "dict[str, Axes]":
    """What the quantized graphs alone can show."""
    from qtoolkit import draw

    graph = e.quantized[e.weights]
    beside = None if e.other is None else e.quantized[e.other]
    try:
        node = draw.default_node(graph)
    except UnknownName:  # no layer has weights
        return {}
    return {"scales": draw.channel_scales(graph, node, other=beside)}


def _placed(e: Exploration) -> "dict[str, Axes]":
    """Storage and layout of every value, where there is more than one storage."""
    from qtoolkit import draw

    return {"placement": draw.placement(e.compiled)} if e.backends[-1] in DEVICES else {}


def _runs(e: Exploration) -> "dict[str, Axes]":
    """What running showed; pictures of one input show the first, whose runs were kept."""
    from qtoolkit import draw
    from qtoolkit.draw.frame import ran_on

    last = e.runs[e.backends[-1]]
    name, x = e.model.evaluation[0]
    shown = {"float": e.runs["float"], last.backend: last}
    drawn = {
        "input": draw.photo(x, shown, e.model.labels, name),
        # The run that was kept is the first: it also loaded or compiled kernels.
        "time": draw.timing(execute(e.compiled, x, device=_device(e))),
    }
    if any(n.sqnr == "finite" for n in (*e.nodes, *e.other_nodes)):
        drawn["sqnr"] = draw.sqnr(
            e.nodes,
            e.other_nodes or None,
            labels=(e.weights, e.other or ""),
            data=e.model.data_source,
            device=ran_on(last),
        )
    comparison = compare(e.runs["float"], last)
    try:
        drawn["error"] = draw.error(comparison)
        drawn["error_map"] = draw.error_map(comparison)
        others = [b for b in e.backends if b != "reference"]
        if len(others) > 1:
            before = compare(e.runs["float"], e.runs[others[-2]])
            drawn["error_maps"] = draw.error_maps(before, comparison)
    except UnknownName:  # no conv or linear was compared
        return drawn
    return drawn


def _device(e: Exploration) -> DeviceChoice:
    return e.device if e.backends[-1] in DEVICES else None


def _picture(ax: "Axes") -> Picture:
    from qtoolkit.draw.frame import caption_of

    figure = ax.get_figure(root=True)
    assert figure is not None
    data = BytesIO()
    figure.savefig(data, format="png", dpi=DRAWN)
    told = f"{ax.get_title(loc='left')}. {caption_of(ax)}"
    source = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
    return Picture(source, told, round(SHOWN * figure.get_figwidth()))
