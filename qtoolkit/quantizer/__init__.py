"""Our int8 quantizer: from a module and calibration data to a Graph with quantize, dequantize."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from qtoolkit.errors import CalibrationError
from qtoolkit.execution import match_inputs
from qtoolkit.graph import Graph
from qtoolkit.program import export, import_graph_module, import_program, quiet
from qtoolkit.program.writes import twin
from qtoolkit.quantizer.annotate import GRANULARITIES, Int8Quantizer
from qtoolkit.quantizer.fold import Folded, fold_batch_norms, unhide
from qtoolkit.quantizer.observers import non_finite
from qtoolkit.quantizer.torchao import convert_pt2e, prepare_pt2e
from qtoolkit.quantizer.weights import observe_parameters, settle_scales, write_biases
from qtoolkit.trace import Step

__all__ = ["GRANULARITIES", "Int8Quantizer", "quantize", "quantize_program", "quantize_steps"]
NARROW_OR_WIDE = (torch.float16, torch.bfloat16, torch.float64)


def quantize(
    module: torch.nn.Module,
    example: Any,
    calibration: Sequence[Any],
    weights: str = "per-channel",
    strict: bool = False,
) -> Graph:
    """Quantize a module in eval mode to int8; the Graph has quantize and dequantize nodes.

    calibration: one tuple of forward's arguments for each batch, shaped like `example`. weights:
    "per-channel" (one scale per output channel) or "per-tensor". Raises CalibrationError for NaN,
    inf or no data, QParamError for a scale outside the contract, and, if strict, where a weight
    scale had to be raised for its bias.
    """
    return quantize_steps(module, example, calibration, weights, strict)[0]


def quantize_steps(
    module: torch.nn.Module,
    example: Any,
    calibration: Sequence[Any],
    weights: str = "per-channel",
    strict: bool = False,
) -> tuple[Graph, tuple[Step, ...]]:
    """As quantize, with a step for each weight that is raised, dead or underflowed."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(t.dtype in NARROW_OR_WIDE for t in tensors):
        module = deepcopy(module).float()
        example, calibration = pytree.tree_map(_float32, (example, tuple(calibration)))
    return quantize_program(export(module, example), calibration, weights, strict)


def quantize_program(
    program: ExportedProgram,
    calibration: Sequence[Any],
    weights: str = "per-channel",
    strict: bool = False,
) -> tuple[Graph, tuple[Step, ...]]:
    """As quantize_steps, for a program already exported, which is left as it is."""
    captured = import_program(program)
    quantizer = Int8Quantizer(weights)
    with quiet(), torch.no_grad():
        module = program.module(check_guards=False)
        make_functional(module)
        folded = fold_batch_norms(module)
        prepared = prepare_pt2e(module, quantizer)
        parameters = observe_parameters(prepared, quantizer)
        calibrate(prepared, quantizer, captured, calibration)
        steps = settle_scales(parameters, strict)
        converted = convert_pt2e(prepared)
        unhide(converted)
        names = write_biases(converted, parameters, {f.into: f.weight for f in folded})
        example = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]
        specs = program.call_spec.in_spec, program.call_spec.out_spec
        graph = import_graph_module(converted, tuple(example), origins(folded), names, specs)
    return graph, steps


def make_functional(module: fx.GraphModule) -> None:
    """Replace each in-place op by its functional twin, under the same name."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            node.target = twin(node)
    module.recompile()


def calibrate(
    prepared: fx.GraphModule, quantizer: Int8Quantizer, captured: Graph, calibration: Sequence[Any]
) -> None:
    """Run each batch through the prepared module, whose observers take in what they see."""
    if isinstance(calibration, torch.Tensor | np.ndarray | dict):
        raise CalibrationError("calibration is one batch; pass a list of tuples of arguments")
    calibration = tuple(calibration)
    if not calibration:
        raise CalibrationError("calibration is empty; pass at least one batch of inputs")
    for i, batch in enumerate(calibration):
        if isinstance(batch, dict):
            raise CalibrationError(f"batch {i} is a dict; pass a tuple of forward's arguments")
        args = batch if isinstance(batch, tuple | list) else (batch,)
        args = pytree.tree_map(_tensor, tuple(args))
        leaves = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        match_inputs(captured, leaves)
        for name, leaf in zip(captured.inputs, leaves, strict=True):
            if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
                raise CalibrationError(non_finite(name, leaf, f"batch {i}"))
        for observer in quantizer.ranges():
            observer.batch = i
        prepared(*args)


def origins(folded: Sequence[Folded]) -> dict[str, tuple[str, ...]]:
    """The captured nodes of each conv or linear that took in a batch norm."""
    return {f.into: (f.conv, f.norm) for f in folded}


def _tensor(leaf: Any) -> Any:
    return torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf


def _float32(leaf: Any) -> Any:
    tensor = _tensor(leaf)
    narrow = isinstance(tensor, torch.Tensor) and tensor.dtype in NARROW_OR_WIDE
    return tensor.float() if narrow else leaf
