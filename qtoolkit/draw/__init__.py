"""Pictures of graphs, runs and comparisons: draw.x(data, ax=None) gives Axes and shows nothing."""

from qtoolkit.draw.choice import default_node
from qtoolkit.draw.clock import timing
from qtoolkit.draw.costs import costs, operands, results, transitions
from qtoolkit.draw.deviation import error, error_map
from qtoolkit.draw.frame import png
from qtoolkit.draw.input import photo
from qtoolkit.draw.narrowing import repsets
from qtoolkit.draw.network import graph
from qtoolkit.draw.placing import placement
from qtoolkit.draw.reasons import why
from qtoolkit.draw.scales import channel_scales
from qtoolkit.draw.side_by_side import error_maps
from qtoolkit.draw.svg import graph_svg
from qtoolkit.draw.texels import layouts
from qtoolkit.draw.waterfall import sqnr

__all__ = [
    "channel_scales",
    "costs",
    "default_node",
    "error",
    "error_map",
    "error_maps",
    "graph",
    "graph_svg",
    "layouts",
    "operands",
    "photo",
    "placement",
    "png",
    "repsets",
    "results",
    "sqnr",
    "timing",
    "transitions",
    "why",
]
