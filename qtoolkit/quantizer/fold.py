"""Folding batch norm into the conv or linear before it, in float64, with every weight its own."""

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

CONVS = ("aten.conv1d.default", "aten.conv2d.default", "aten.conv1d.padding", "aten.conv2d.padding")
BATCH_NORM = "aten.batch_norm.default"
ALIAS = "aten.alias.default"
HIDDEN = "qtoolkit_hides_a_batch_norm"  # no q/dq goes around such an alias


@dataclass(frozen=True, slots=True)
class Folded:
    """A batch norm, the conv or linear before it, the node that computes both, and the state-dict
    name of the weight.
    """

    norm: str
    conv: str
    into: str
    weight: str


def fold_batch_norms(module: fx.GraphModule) -> tuple[Folded, ...]:
    """Fold each batch norm that follows a conv or linear of constant weights, in place.

    prepare_pt2e folds too, but it gives a conv that is called twice a bias of zeros, and hands the
    normalized value to readers of the conv itself. Here a conv that has other readers stays, and
    the batch norm's node becomes a conv of its own. Batch norms that stay are hidden from
    prepare_pt2e behind an alias; `unhide` takes it out.
    """
    folded: list[Folded] = []
    for norm in [n for n in module.graph.nodes if str(n.target) == BATCH_NORM]:
        before = norm.args[0]
        if _foldable(norm, before):
            folded.append(_fold(module, norm, before))
        else:
            with module.graph.inserting_before(norm):
                hidden = module.graph.call_function(torch.ops.aten.alias.default, (before,))
            hidden.meta = dict(before.meta) | {HIDDEN: True}
            norm.replace_input_with(before, hidden)
    module.graph.lint()
    module.recompile()
    return tuple(folded)


def unhide(module: fx.GraphModule) -> None:
    """Remove the aliases that hid batch norms."""
    for node in [n for n in module.graph.nodes if str(n.target) == ALIAS]:
        if any(str(reader.target) == BATCH_NORM for reader in node.users):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
    module.recompile()


def _foldable(norm: fx.Node, before: Any) -> bool:
    if not isinstance(before, fx.Node):
        return False
    linear = str(before.target) == "aten.linear.default" and before.meta["val"].dim() == 2
    if not linear and str(before.target) not in CONVS:
        return False
    operands = (*before.args[1:3], *norm.args[1:5])
    constant = all(a is None or (isinstance(a, fx.Node) and a.op == "get_attr") for a in operands)
    return constant and norm.args[3] is not None and norm.args[5] is False


def _fold(module: fx.GraphModule, norm: fx.Node, conv: fx.Node) -> Folded:
    original = str(conv.args[1].target)  # type: ignore[union-attr]
    tensors = zip(("weight", "bias"), _folded_tensors(module, norm, conv), strict=True)
    alone = len(conv.users) == 1
    name = norm.name
    with module.graph.inserting_before(conv if alone else norm):
        operands = tuple(_attribute(module, f"{norm.name}_{k}", v) for k, v in tensors)
        args = (conv.args[0], *operands, *conv.args[3:])
        if alone:
            conv.args = args
            norm.replace_all_uses_with(conv)
            module.graph.erase_node(norm)
            return Folded(name, conv.name, conv.name, original)
    # The batch norm's own node becomes the second conv, and so keeps its name.
    norm.target, norm.args, norm.kwargs = conv.target, args, conv.kwargs
    return Folded(name, conv.name, name, original)


def _folded_tensors(
    module: fx.GraphModule, norm: fx.Node, conv: fx.Node
) -> tuple[torch.Tensor, torch.Tensor]:
    """float32 weight[O, ...] and bias[O] that give what conv and then norm give."""
    w, b, gamma, beta, mean, variance = (
        None if a is None else _tensor(module, a).double()
        for a in (conv.args[1], *(conv.args[2:3] or (None,)), *norm.args[1:5])
    )
    assert w is not None and mean is not None and variance is not None
    factor = (variance + float(norm.args[7])).rsqrt()  # type: ignore[arg-type]
    factor = factor if gamma is None else factor * gamma
    shift = ((0 if b is None else b) - mean) * factor + (0 if beta is None else beta)
    weight = w * factor.reshape(-1, *[1] * (w.dim() - 1))
    return weight.to(torch.float32), shift.to(torch.float32)


def _tensor(module: fx.GraphModule, node: Any) -> torch.Tensor:
    value = operator.attrgetter(node.target)(module)
    assert isinstance(value, torch.Tensor)
    return value.detach()


def _attribute(module: fx.GraphModule, name: str, value: torch.Tensor) -> fx.Node:
    module.register_buffer(name, value)
    node = module.graph.get_attr(name)
    node.meta["val"] = value
    return node
