"""Which values become int8, and which of them share qparams."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import fx

from qtoolkit.quantizer.fold import HIDDEN


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


class Places(NamedTuple):
    """The argument positions of an op with a constant weight, and the weight's outputs axis."""

    x: int = 0
    weight: int = 1
    bias: int | None = 2
    outputs_axis: int = 0


PRODUCTS: Mapping[str, Places] = {
    "aten.addmm.default": Places(1, 2, 0, outputs_axis=1),
    "aten.mm.default": Places(bias=None, outputs_axis=1),
    "aten.matmul.default": Places(bias=None, outputs_axis=1),
    "aten.bmm.default": Places(bias=None),
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
    kinds = {n: kind for n in graph.nodes if (kind := kind_of(n)) and _eligible(n, kind)}
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


def kind_of(node: fx.Node) -> Kind | None:
    """A product by a constant matrix is weighted; one of two activations has its own qparams."""
    if str(node.target) not in PRODUCTS:
        return KINDS.get(str(node.target))
    matrix = node.args[places(node).weight]
    if isinstance(matrix, fx.Node) and matrix.op == "get_attr" and _rank(matrix) == 2:
        return Kind.WEIGHTED
    return Kind.OWN


def places(node: fx.Node) -> Places:
    """Where an op that may be weighted has its operands."""
    return PRODUCTS.get(str(node.target), Places())


def activations(node: fx.Node) -> tuple[fx.Node, ...]:
    """The runtime operands of an op that works on int8: not weights, bias or numbers."""
    if str(node.target) == "aten.cat.default":
        return tuple(dict.fromkeys(node.args[0]))  # type: ignore[arg-type]
    given = node.args[:1]
    if kind_of(node) is Kind.WEIGHTED:
        given = (node.args[places(node).x],)
    elif str(node.target) in ("aten.add.Tensor", *PRODUCTS):
        given = node.args[:2]
    return tuple(dict.fromkeys(a for a in given if isinstance(a, fx.Node)))


def parameters(node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """The weight and the bias of a weighted op."""
    at = places(node)
    weight = node.args[at.weight]
    bias = node.args[at.bias] if at.bias is not None and at.bias < len(node.args) else None
    assert isinstance(weight, fx.Node)
    return weight, bias if isinstance(bias, fx.Node) else None


def _eligible(node: fx.Node, kind: Kind) -> bool:
    if HIDDEN in node.meta or not all(map(_float32, (node, *_operands(node)))):
        return False
    match kind:
        case Kind.WEIGHTED if str(node.target) == "aten.addmm.default":
            return not _scaled(node) and _one_per_output(node)
        case Kind.WEIGHTED if str(node.target) in PRODUCTS:
            return True
        case Kind.WEIGHTED:
            constant = (node.args[1], *node.args[2:3])
            return all(a is None or (isinstance(a, fx.Node) and a.op == "get_attr")
                       for a in constant)  # fmt: skip
        case Kind.ACTIVATION:
            return not any(isinstance(a, fx.Node) for a in node.args[1:])
        case _ if str(node.target) == "aten.addmm.default":
            return False
        case _ if str(node.target) == "aten.add.Tensor":
            alpha = node.kwargs.get("alpha", 1)
            return isinstance(node.args[1], fx.Node) and 0 <= float(alpha) < float("inf")  # type: ignore[arg-type]
        case _ if "dropout" in str(node.target):
            return node.args[2] is False
        case _:
            return True


def _scaled(node: fx.Node) -> bool:
    return any(node.kwargs.get(name, 1) != 1 for name in ("beta", "alpha"))


def _one_per_output(node: fx.Node) -> bool:
    """The bias of an addmm is a constant with one value per output, or one for all."""
    bias = node.args[0]
    if not isinstance(bias, fx.Node) or bias.op != "get_attr":
        return False
    *lead, last = bias.meta["val"].shape or (1,)
    return all(size == 1 for size in lead) and last in (1, node.meta["val"].shape[-1])


def _rank(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else -1


def _operands(node: fx.Node) -> Iterable[fx.Node]:
    parts = node.args[0] if isinstance(node.args[0], list | tuple) else node.args[:3]
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
