"""Weights and biases: their scales, widened where a bias asks for it, and the codes of biases."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from qtoolkit.errors import CalibrationError, QParamError
from qtoolkit.qparams import bias_codes
from qtoolkit.quantizer.annotate import Int8Quantizer
from qtoolkit.quantizer.observers import ActivationRange, WeightScale, non_finite
from qtoolkit.quantizer.plan import PRODUCTS, places
from qtoolkit.trace import NO_EDIT, Step


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a weighted op is quantized by: its node, weight, bias and the observers.

    bias_name: the bias's own name where that is not told by the weight's.
    """

    node: str
    weight: str
    bias_name: str | None
    x: ActivationRange
    w: WeightScale
    bias: NDArray[np.float64] | None


def observe_parameters(
    prepared: fx.GraphModule, quantizer: Int8Quantizer
) -> tuple[Parameters, ...]:
    """Show each weight to its observer. Raises CalibrationError for a NaN or inf among them."""
    found: list[Parameters] = []
    for node, (weight, bias) in quantizer.parameters.items():
        w = quantizer.observers[weight, node]
        w.see(weight.name, _attribute(prepared, weight))
        values = None if bias is None else _attribute(prepared, bias)
        if values is not None and not bool(torch.isfinite(values).all()):
            raise CalibrationError(non_finite(str(bias), values, "the weights"))
        # prepare_pt2e has put an observer before the op; values that share qparams share it.
        source = node.args[places(node).x]
        assert isinstance(source, fx.Node)
        x = prepared.get_submodule(str(source.target))
        assert isinstance(x, ActivationRange)
        told = None if values is None else values.detach().double().numpy().reshape(-1)
        own = None if bias is None or str(node.target) not in PRODUCTS else str(bias.target)
        found.append(Parameters(node.name, str(weight.target), own, x, w, told))
    return tuple(found)


def settle_scales(parameters: Sequence[Parameters], strict: bool) -> tuple[Step, ...]:
    """Widen weight scales for their biases; a step for each weight raised, dead or underflowed.

    Raises QParamError, if strict, naming every weight that had to be raised.
    """
    steps = tuple(step for p in parameters for step in _settle(p))
    raised = [s.node for s in steps if s.kind == "raised"]
    if strict and raised:
        raise QParamError(
            f"strict: weight scales of {', '.join('%' + n for n in raised)} had to be raised for "
            "their bias; allow it (strict=False) or rescale these layers"
        )
    return steps


def _settle(p: Parameters) -> Iterator[Step]:
    why: tuple[Any, ...]
    count = p.w.max_abs.size
    if p.bias is not None:
        channels = p.w.raise_for(p.bias, float(p.x.qparams().scale[0]))
        if channels.size:
            old, new = p.w.unraised, p.w.scale
            worst = channels[np.argmax(new[channels] / old[channels])]
            why = (
                "{} of {} weight scales raised for the bias; channel {} most, {:.4g} -> {:.4g}",
                channels.size, count, int(worst), float(old[worst]), float(new[worst]),
                tuple(channels.tolist()),
            )  # fmt: skip
            yield Step(NO_EDIT, "raised", p.node, why)
    if p.w.dead.size:
        why = ("{} of {} weight channels are all zero: {}", p.w.dead.size, count, _list(p.w.dead))
        yield Step(NO_EDIT, "dead", p.node, why)
    if p.w.underflowed.size:
        why = (
            "{} of {} weight channels are too small for a scale of their own: {}",
            p.w.underflowed.size, count, _list(p.w.underflowed),
        )  # fmt: skip
        yield Step(NO_EDIT, "underflowed", p.node, why)


def write_biases(
    converted: fx.GraphModule,
    parameters: Sequence[Parameters],
    folded: Mapping[str, str],
    transposed: Mapping[str, str],
) -> dict[str, str]:
    """Put the contract's bias codes in place of torch's; return readable names for attributes.

    torch quantizes a bias in float32, which is inexact above 2^24 and wraps beyond int32. folded:
    the state-dict name of the weight of each node that took in a batch norm; transposed: the name
    of what an attribute holds.
    """
    names: dict[str, str] = {}
    by_name = {n.name: n for n in converted.graph.nodes}
    for p in parameters:
        if p.node not in by_name:
            continue  # Nothing reads it, and torch has removed it.
        node = by_name[p.node]
        at = places(node)
        weight = folded.get(p.node, transposed.get(p.weight, p.weight))
        names |= _names(node.args[at.weight], weight)
        if p.bias is None or at.bias is None:
            continue
        dequantize: Any = node.args[at.bias]
        names |= _names(dequantize, p.bias_name or _bias_name(weight))
        codes = bias_codes(p.bias, float(p.x.qparams().scale[0]), p.w.scale)
        stored = operator.attrgetter(dequantize.args[0].target)(converted)
        stored.data.copy_(torch.from_numpy(codes.astype(np.int32)).reshape(stored.shape))
    return names


def _names(dequantize: Any, name: str) -> dict[str, str]:
    """Names for the codes, scale and zero point that a dequantize of a constant reads."""
    parts = zip(dequantize.args[:3], ("", ".scale", ".zero_point"), strict=True)
    return {str(a.target): name + part for a, part in parts if isinstance(a, fx.Node)}


def _bias_name(weight: str) -> str:
    return weight.removesuffix("weight") + "bias" if weight.endswith("weight") else weight + ".bias"


def _attribute(module: fx.GraphModule, node: fx.Node) -> torch.Tensor:
    value: torch.Tensor = operator.attrgetter(str(node.target))(module)
    return value


def _list(channels: NDArray[np.intp]) -> str:
    told = ", ".join(map(str, channels[:8].tolist()))
    return told + (f", … ({channels.size})" if channels.size > 8 else "")
