"""Which values become int8 and which share qparams; told to torchao as annotations."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import fx

from qtoolkit.errors import UnknownName
from qtoolkit.quantizer.fold import HIDDEN
from qtoolkit.quantizer.observers import ActivationRange, WeightScale, bias_qparams
from qtoolkit.quantizer.torchao import (
    Q_ANNOTATION_KEY,
    DerivedQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

GRANULARITIES = ("per-channel", "per-tensor")
INT32 = (-(2**31), 2**31 - 1)


class Kind(StrEnum):
    """How an op stands to the qparams of its result."""

    WEIGHTED = "weighted"  # its own; weights and bias are constants
    OWN = "own"  # its own
    ACTIVATION = "activation"  # its own, or none if it is folded into the op before it
    JOINT = "joint"  # one range for all inputs and the result
    SHARE = "share"  # those of its first input


KINDS: Mapping[str, Kind] = {
    "aten.conv1d.default": Kind.WEIGHTED,
    "aten.conv1d.padding": Kind.WEIGHTED,
    "aten.conv2d.default": Kind.WEIGHTED,
    "aten.conv2d.padding": Kind.WEIGHTED,
    "aten.linear.default": Kind.WEIGHTED,
    "aten.add.Tensor": Kind.OWN,
    "aten.avg_pool2d.default": Kind.OWN,
    "aten.adaptive_avg_pool2d.default": Kind.OWN,
    "aten.relu.default": Kind.ACTIVATION,
    "aten.relu6.default": Kind.ACTIVATION,
    "aten.hardtanh.default": Kind.ACTIVATION,
    "aten.clamp.default": Kind.ACTIVATION,
    "aten.clamp_min.default": Kind.ACTIVATION,
    "aten.clamp_max.default": Kind.ACTIVATION,
    "aten.cat.default": Kind.JOINT,
    "aten.max_pool2d.default": Kind.SHARE,
    "aten.pad.default": Kind.SHARE,
    "aten.constant_pad_nd.default": Kind.SHARE,
    "aten.view.default": Kind.SHARE,
    "aten.reshape.default": Kind.SHARE,
    "aten.flatten.using_ints": Kind.SHARE,
    "aten.permute.default": Kind.SHARE,
    "aten.transpose.int": Kind.SHARE,
    "aten.squeeze.default": Kind.SHARE,
    "aten.squeeze.dim": Kind.SHARE,
    "aten.squeeze.dims": Kind.SHARE,
    "aten.unsqueeze.default": Kind.SHARE,
    "aten.dropout.default": Kind.SHARE,
    "aten.feature_dropout.default": Kind.SHARE,
    "aten.clone.default": Kind.SHARE,
    "aten.contiguous.default": Kind.SHARE,
    "aten.alias.default": Kind.SHARE,
    "aten.detach.default": Kind.SHARE,
    "aten.slice.Tensor": Kind.SHARE,
}


@dataclass(frozen=True, slots=True)
class Int8Plan:
    """Which nodes work on int8, and for each value the value that owns its qparams.

    folded: nodes without qparams of their own, since an activation after them takes them in.
    """

    nodes: tuple[fx.Node, ...]
    owner: Mapping[fx.Node, fx.Node]
    folded: frozenset[fx.Node]


def plan(graph: fx.Graph) -> Int8Plan:
    """Decide what works on int8, following numbers.md on who owns qparams."""
    kinds = {n: KINDS[str(n.target)] for n in graph.nodes if _eligible(n)}
    always = (Kind.WEIGHTED, Kind.OWN, Kind.JOINT)
    chosen = {n for n, kind in kinds.items() if kind in always}
    # Ops that only move or clamp values are quantized where that joins quantized neighbours.
    for order in (kinds, reversed(kinds)):
        for node in order:
            near = (*activations(node), *node.users)
            if node not in chosen and any(n in chosen for n in near):
                chosen.add(node)
    nodes = tuple(n for n in kinds if n in chosen)
    owner: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        if kinds[node] in (Kind.SHARE, Kind.JOINT):
            for value in activations(node):
                _unite(owner, node, value)
    roots = {value: _root(owner, value) for value in owner}
    folded = frozenset(n for n in nodes if kinds[n] in always and _taken_in(n, kinds, chosen))
    return Int8Plan(nodes, roots, folded)


def activations(node: fx.Node) -> tuple[fx.Node, ...]:
    """The runtime operands of an op that works on int8: not weights, bias or numbers."""
    if str(node.target) == "aten.cat.default":
        return tuple(dict.fromkeys(node.args[0]))  # type: ignore[arg-type]
    count = 2 if str(node.target) == "aten.add.Tensor" else 1
    return tuple(dict.fromkeys(a for a in node.args[:count] if isinstance(a, fx.Node)))


def parameters(node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """The weight and the bias of a conv or linear."""
    weight, bias = (*node.args[1:3], None)[:2]
    assert isinstance(weight, fx.Node)
    return weight, bias if isinstance(bias, fx.Node) else None


def _eligible(node: fx.Node) -> bool:
    kind = KINDS.get(str(node.target))
    if kind is None or HIDDEN in node.meta or not all(map(_float32, (node, *_operands(node)))):
        return False
    match kind:
        case Kind.WEIGHTED:
            constant = (node.args[1], *node.args[2:3])
            return all(a is None or (isinstance(a, fx.Node) and a.op == "get_attr")
                       for a in constant)  # fmt: skip
        case Kind.ACTIVATION:
            return not any(isinstance(a, fx.Node) for a in node.args[1:])
        case _ if str(node.target) == "aten.add.Tensor":
            alpha = node.kwargs.get("alpha", 1)
            return isinstance(node.args[1], fx.Node) and 0 <= float(alpha) < float("inf")  # type: ignore[arg-type]
        case _ if "dropout" in str(node.target):
            return node.args[2] is False
        case _:
            return True


def _operands(node: fx.Node) -> Iterable[fx.Node]:
    parts = node.args[0] if isinstance(node.args[0], list | tuple) else node.args[:2]
    return [a for a in parts if isinstance(a, fx.Node)]


def _float32(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _taken_in(node: fx.Node, kinds: Mapping[fx.Node, Kind], chosen: set[fx.Node]) -> bool:
    """Whether the only reader is an activation that fuse folds into this op."""
    if len(node.users) != 1 or kinds[node] is Kind.JOINT or "pool" in str(node.target):
        return False
    (reader,) = node.users
    return reader in chosen and kinds[reader] is Kind.ACTIVATION


def _root(owner: Mapping[fx.Node, fx.Node], value: fx.Node) -> fx.Node:
    while owner.get(value, value) is not value:
        value = owner[value]
    return value


def _unite(owner: dict[fx.Node, fx.Node], a: fx.Node, b: fx.Node) -> None:
    owner[_root(owner, b)] = owner[_root(owner, a)] = _root(owner, a)


class Int8Quantizer(Quantizer):  # type: ignore[misc]
    """int8: activations per-tensor affine, weights symmetric per-channel or per-tensor.

    Every value has one observer, and values that share qparams share it: the first place that
    prepare_pt2e visits holds the spec, all others point there, so no chain of pointers can loop.
    After prepare_pt2e, `observers` holds the observer of each edge and node, `parameters` the
    weight and bias of each conv and linear.
    """

    def __init__(self, weights: str = GRANULARITIES[0]) -> None:
        super().__init__()
        if weights not in GRANULARITIES:
            raise UnknownName(f"weights {weights!r}; choose one of {', '.join(GRANULARITIES)}")
        channel = weights == "per-channel"
        self.activation = QuantizationSpec(
            torch.int8, ActivationRange, -128, 127, torch.per_tensor_affine
        )
        scheme = torch.per_channel_symmetric if channel else torch.per_tensor_symmetric
        self.weight = QuantizationSpec(
            torch.int8, WeightScale, -127, 127, scheme, ch_axis=0 if channel else None
        )
        self.plan = Int8Plan((), {}, frozenset())
        self.observers: dict[Any, Any] = {}
        self.parameters: dict[fx.Node, tuple[fx.Node, fx.Node | None]] = {}

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        self.plan = plan(model.graph)
        anchors: dict[fx.Node, Any] = {}
        for node in self.plan.nodes:
            inputs = {
                v: self._spec(v, (v, node), anchors)
                for v in activations(node)
                if v not in self.plan.folded
            }
            if KINDS[str(node.target)] is Kind.WEIGHTED:
                inputs |= self._parameter_specs(node)
            output = None if node in self.plan.folded else self._spec(node, node, anchors)
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                inputs, output, allow_implicit_sharing=False, _annotated=True
            )
        return model

    def _spec(self, value: fx.Node, place: Any, anchors: dict[fx.Node, Any]) -> Any:
        owner = self.plan.owner.get(value, value)
        if owner in anchors:
            return SharedQuantizationSpec(anchors[owner])
        anchors[owner] = place
        return self.activation

    def _parameter_specs(self, node: fx.Node) -> dict[fx.Node, Any]:
        weight, bias = self.parameters[node] = parameters(node)
        specs: dict[fx.Node, Any] = {weight: self.weight}
        if bias is not None:
            specs[bias] = DerivedQuantizationSpec(
                derived_from=[(node.args[0], node), (weight, node)],
                derive_qparams_fn=bias_qparams,
                dtype=torch.int32,
                quant_min=INT32[0],
                quant_max=INT32[1],
                qscheme=self.weight.qscheme,
                ch_axis=self.weight.ch_axis,
            )
        return specs

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: annotate asks only for what the plan allows."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        self.observers = dict(edge_or_node_to_obs_or_fq)
        for place, observer in self.observers.items():
            value = place[0] if isinstance(place, tuple) else place
            if isinstance(observer, ActivationRange) and not observer.node:
                observer.node = value.name

    def ranges(self) -> Iterator[ActivationRange]:
        """Each activation observer once."""
        found = {id(o): o for o in self.observers.values() if isinstance(o, ActivationRange)}
        return iter(found.values())
