"""Our int8 quantizer: from a module and calibration data to a Graph with quantize, dequantize."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from qtoolkit.errors import CalibrationError, QParamError
from qtoolkit.execution import match_inputs
from qtoolkit.graph import Arg, Graph, Ref, map_leaves
from qtoolkit.program import export, import_graph_module, import_program, quiet
from qtoolkit.program.writes import twin
from qtoolkit.quantizer.annotate import Int8Quantizer
from qtoolkit.quantizer.config import (
    GRANULARITIES,
    QuantizationConfig,
    get_symmetric_quantization_config,
)
from qtoolkit.quantizer.fold import Folded, fold_batch_norms, unhide
from qtoolkit.quantizer.matrices import settle_transposes
from qtoolkit.quantizer.observers import non_finite
from qtoolkit.quantizer.told import annotated, observed
from qtoolkit.quantizer.torchao import convert_pt2e, prepare_pt2e
from qtoolkit.quantizer.weights import observe_parameters, settle_scales, write_biases
from qtoolkit.trace import Chain, Step

__all__ = [
    "GRANULARITIES",
    "Int8Quantizer",
    "QuantizationConfig",
    "get_symmetric_quantization_config",
    "quantize",
    "quantize_program",
    "quantize_steps",
    "quantized_program",
]
Weights = str | QuantizationConfig
NARROW_OR_WIDE = (torch.float16, torch.bfloat16, torch.float64)


def quantize(
    module: torch.nn.Module,
    example: Any,
    calibration: Sequence[Any],
    weights: Weights = "per-channel",
    strict: bool = False,
) -> Graph:
    """Quantize a module in eval mode to int8; the Graph has quantize and dequantize nodes.

    calibration: one tuple of forward's arguments for each batch, shaped like `example`. weights:
    "per-channel" (one scale per output channel), "per-tensor", or what
    get_symmetric_quantization_config gives. Raises CalibrationError for NaN,
    inf or no data, QParamError for a scale outside the contract, and, if strict, where a weight
    scale had to be raised for its bias.
    """
    return quantize_steps(module, example, calibration, weights, strict)[0]


def quantize_steps(
    module: torch.nn.Module,
    example: Any,
    calibration: Sequence[Any],
    weights: Weights = "per-channel",
    strict: bool = False,
) -> tuple[Graph, Chain]:
    """As quantize, with its steps: each pattern 'annotated', each 'range' observed, and each weight
    'raised' for its bias, 'dead' or 'underflowed'.
    """
    module, (example, calibration) = in_float32(module, (example, batches(calibration)))
    return quantize_program(export(module, example), calibration, weights, strict)


def in_float32(module: Any, data: Any) -> tuple[Any, Any]:
    """A module of fp16, bf16 or float64 weights and its data, as a float32 copy; else unchanged."""
    if isinstance(module, torch.nn.Module) and any(
        t.dtype in NARROW_OR_WIDE for t in (*module.parameters(), *module.buffers())
    ):
        return deepcopy(module).float(), pytree.tree_map(_float32, data)
    return module, data


def quantize_program(
    program: ExportedProgram,
    calibration: Sequence[Any],
    weights: Weights = "per-channel",
    strict: bool = False,
) -> tuple[Graph, Chain]:
    """As quantize_steps, for a program already exported, which is left as it is."""
    captured, calibration = import_program(program), batches(calibration)
    converted, steps, names, folded = _converted(program, captured, calibration, weights, strict)
    with quiet():
        example = [n.meta["val"] for n in converted.graph.find_nodes(op="placeholder")]
        specs = program.call_spec.in_spec, program.call_spec.out_spec
        graph = import_graph_module(converted, tuple(example), origins(folded), names, specs)
    return with_inputs(graph, captured.inputs), Chain(steps)


def quantized_program(
    module: torch.nn.Module,
    example: Any,
    calibration: Sequence[Any],
    weights: Weights = "per-channel",
) -> ExportedProgram:
    """As quantize, but a program of torch with quantize and dequantize ops, for other compilers."""
    module, (example, calibration) = in_float32(module, (example, batches(calibration)))
    program = export(module, example)
    converted, *_ = _converted(program, import_program(program), calibration, weights, False)
    with quiet():
        return torch.export.export(converted, example)


def _converted(
    program: ExportedProgram,
    captured: Graph,
    calibration: Sequence[Any],
    weights: Weights,
    strict: bool,
) -> tuple[fx.GraphModule, tuple[Step, ...], dict[str, str], Sequence[Folded]]:
    """The program after convert_pt2e, the steps of its scales, readable names, what was folded."""
    quantizer = Int8Quantizer(weights)
    with quiet(), torch.no_grad():
        module = program.module(check_guards=False)
        make_functional(module)
        transposed = settle_transposes(module)
        folded = fold_batch_norms(module)
        prepared = prepare_pt2e(module, quantizer)
        parameters = observe_parameters(prepared, quantizer)
        calibrate(prepared, quantizer, captured, calibration)
        inputs = [n.name for n in prepared.graph.find_nodes(op="placeholder")]
        called = dict(zip(inputs, captured.inputs, strict=True))
        told = (*annotated(quantizer), *observed(quantizer, len(calibration), called))
        steps = (*told, *settle_scales(parameters, strict))
        converted = _convert(prepared, quantizer)
        unhide(converted)
        names = write_biases(converted, parameters, {f.into: f.weight for f in folded}, transposed)
    return converted, steps, names, folded


def _convert(prepared: fx.GraphModule, quantizer: Int8Quantizer) -> fx.GraphModule:
    """convert_pt2e. Raises QParamError for a bias spec that is not as fine as the weight's."""
    try:
        converted: fx.GraphModule = convert_pt2e(prepared)
    except ValueError as why:
        if quantizer.config.align_bias_spec:
            raise
        raise QParamError(
            f"align_bias_spec=False: per-channel weights, but a per-tensor bias spec ({why}); use "
            "align_bias_spec=True or per-tensor weights"
        ) from why
    return converted


def with_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with its inputs called `names`: torch calls an `input` of the module `input_1`."""
    changed = dict(zip(graph.inputs, names, strict=True))

    def called(leaf: Arg) -> Arg:
        if isinstance(leaf, Ref) and leaf.node in changed:
            return Ref(changed[leaf.node], leaf.index)
        return leaf

    nodes = tuple(
        replace(
            n,
            name=changed.get(n.name, n.name),
            args=tuple(map_leaves(a, called) for a in n.args),
            origin=tuple(changed.get(o, o) for o in n.origin),
        )
        for n in graph.nodes
    )
    outputs = tuple(map_leaves(a, called) for a in graph.outputs)
    inputs = tuple(changed[i] for i in graph.inputs)
    return replace(graph, nodes=nodes, inputs=inputs, outputs=outputs).check()


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
    for i, batch in enumerate(batches(calibration)):
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


def batches(calibration: Any) -> tuple[Any, ...]:
    """The batches of calibration data. Raises CalibrationError for none, or another form."""
    if isinstance(calibration, torch.Tensor | np.ndarray | dict):
        raise CalibrationError("calibration is one batch; pass a list of tuples of arguments")
    found = tuple(calibration)
    if not found:
        raise CalibrationError("calibration is empty; pass at least one batch of inputs")
    for i, batch in enumerate(found):
        if isinstance(batch, dict):
            raise CalibrationError(f"batch {i} is a dict; pass a tuple of forward's arguments")
    return found


def origins(folded: Sequence[Folded]) -> dict[str, tuple[str, ...]]:
    """The captured nodes of each conv or linear that took in a batch norm."""
    return {f.into: (f.conv, f.norm) for f in folded}


def _tensor(leaf: Any) -> Any:
    return torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf


def _float32(leaf: Any) -> Any:
    tensor = _tensor(leaf)
    narrow = isinstance(tensor, torch.Tensor) and tensor.dtype in NARROW_OR_WIDE
    return tensor.float() if narrow else leaf
