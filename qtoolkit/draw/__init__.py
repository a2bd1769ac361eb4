"""Pictures of graphs, runs and comparisons: draw.x(data, ax=None) gives Axes and shows nothing."""

from qtoolkit.draw.choice import default_node
from qtoolkit.draw.clock import timing
from qtoolkit.draw.costs import costs, operands, results, transitions
from qtoolkit.draw.deviation import error, error_map
from qtoolkit.draw.folding import batch_norms
from qtoolkit.draw.frame import png
from qtoolkit.draw.input import photo
from qtoolkit.draw.narrowing import repsets
from qtoolkit.draw.network import graph
from qtoolkit.draw.observed import ranges, rounding
from qtoolkit.draw.placing import placement
from qtoolkit.draw.reasons import why
from qtoolkit.draw.scales import channel_scales
from qtoolkit.draw.side_by_side import error_maps
from qtoolkit.draw.svg import graph_svg
from qtoolkit.draw.texels import layouts
from qtoolkit.draw.waterfall import sqnr
from qtoolkit.draw.weighing import weight_channels, weight_marks, weight_scales, weight_sqnr

__all__ = [
    "batch_norms",
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
    "ranges",
    "repsets",
    "results",
    "rounding",
    "sqnr",
    "timing",
    "transitions",
    "weight_channels",
    "weight_marks",
    "weight_scales",
    "weight_sqnr",
    "why",
]
