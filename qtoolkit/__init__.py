"""qtoolkit: see, run and compare what a quantizing compiler does to a network, to the bit.

    import qtoolkit as qt

The face, by name. Each name is fetched from its room when it is first asked for, so that importing
this package costs next to nothing and a saved graph runs where torch is not installed.
"""

__version__ = "0.1.0"

# As typing.TYPE_CHECKING, which type checkers take for true, without importing typing.
TYPE_CHECKING = False

# name -> (room, name there); a room under its own name has None there.
FACE: dict[str, tuple[str, str | None]] = {
    "Comparison": ("qtoolkit.comparison", "Comparison"),
    "DType": ("qtoolkit.graph", "DType"),
    "FuseRules": ("qtoolkit.passes.rules", "FuseRules"),
    "Graph": ("qtoolkit.graph", "Graph"),
    "PlaceRules": ("qtoolkit.passes.rules", "PlaceRules"),
    "QParams": ("qtoolkit.qparams", "QParams"),
    "QtoolkitError": ("qtoolkit.errors", "QtoolkitError"),
    "Placement": ("qtoolkit.placement", "Placement"),
    "CostModel": ("qtoolkit.passes.place", "CostModel"),
    "Run": ("qtoolkit.execution", "Run"),
    "Trace": ("qtoolkit.trace", "Trace"),
    "available": ("qtoolkit.backends", "available"),
    "capture": ("qtoolkit.program", "capture"),
    "compare": ("qtoolkit.comparison", "compare"),
    "cover": ("qtoolkit.coverage", "cover"),
    "compile": ("qtoolkit.pipeline", "compile"),
    "draw": ("qtoolkit.draw", None),
    "execute": ("qtoolkit.execution", "execute"),
    "get_symmetric_quantization_config": (
        "qtoolkit.quantizer",
        "get_symmetric_quantization_config",
    ),
    "load": ("qtoolkit.pipeline", "load"),
    "models": ("qtoolkit.models", None),
    "ops": ("qtoolkit.ops", None),
    "place": ("qtoolkit.placement", "place"),
    "quantize": ("qtoolkit.quantizer", "quantize"),
    "run_float": ("qtoolkit.program", "run_float"),
    "save": ("qtoolkit.graphfile", "save"),
    "activation_ranges": ("qtoolkit.ranges", "activation_ranges"),
    "batch_norms": ("qtoolkit.norms", "batch_norms"),
    "in_place": ("qtoolkit.program.inplace", "in_place"),
    "list_captured": ("qtoolkit.program.inplace", "list_captured"),
    "quantize_steps": ("qtoolkit.quantizer", "quantize_steps"),
    "weight_errors": ("qtoolkit.weights", "weight_errors"),
    "widgets": ("qtoolkit.widgets", None),
}

__all__ = ["__version__", *FACE]

if TYPE_CHECKING:
    from qtoolkit import draw as draw
    from qtoolkit import models as models
    from qtoolkit import ops as ops
    from qtoolkit import widgets as widgets
    from qtoolkit.backends import available as available
    from qtoolkit.comparison import Comparison as Comparison
    from qtoolkit.comparison import compare as compare
    from qtoolkit.coverage import cover as cover
    from qtoolkit.errors import QtoolkitError as QtoolkitError
    from qtoolkit.execution import Run as Run
    from qtoolkit.execution import execute as execute
    from qtoolkit.graph import DType as DType
    from qtoolkit.graph import Graph as Graph
    from qtoolkit.graphfile import save as save
    from qtoolkit.norms import batch_norms as batch_norms
    from qtoolkit.passes.place import CostModel as CostModel
    from qtoolkit.passes.rules import FuseRules as FuseRules
    from qtoolkit.passes.rules import PlaceRules as PlaceRules
    from qtoolkit.pipeline import compile as compile
    from qtoolkit.pipeline import load as load
    from qtoolkit.placement import Placement as Placement
    from qtoolkit.placement import place as place
    from qtoolkit.program import capture as capture
    from qtoolkit.program import run_float as run_float
    from qtoolkit.program.inplace import in_place as in_place
    from qtoolkit.program.inplace import list_captured as list_captured
    from qtoolkit.qparams import QParams as QParams
    from qtoolkit.quantizer import (
        get_symmetric_quantization_config as get_symmetric_quantization_config,
    )
    from qtoolkit.quantizer import quantize as quantize
    from qtoolkit.quantizer import quantize_steps as quantize_steps
    from qtoolkit.ranges import activation_ranges as activation_ranges
    from qtoolkit.trace import Trace as Trace
    from qtoolkit.weights import weight_errors as weight_errors
else:

    def __getattr__(name):
        if name not in FACE:
            raise AttributeError(f"qtoolkit has no {name!r}; it has {', '.join(FACE)}")
        from importlib import import_module

        room, there = FACE[name]
        module = import_module(room)
        return module if there is None else getattr(module, there)


def __dir__() -> list[str]:
    return sorted(__all__)
