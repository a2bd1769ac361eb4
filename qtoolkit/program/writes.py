"""In-place ops: which write state and are refused, and which become their functional twins."""

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import fx

from qtoolkit.errors import CaptureError

# They change what a tensor looks like, never its cells.
VIEWS_IN_PLACE = ("detach_", "requires_grad_", "squeeze_", "unsqueeze_", "transpose_", "t_")
# Their schemas do not say so, but in eval mode they return their input itself.
SILENT_ALIASES = ("aten.dropout.default", "aten.feature_dropout.default")
TRAINING_FLAG = {
    "aten.batch_norm.default": ("running_mean", 3, 5),
    "aten.native_batch_norm.default": ("running_mean", 3, 5),
    "aten._native_batch_norm_legit.default": ("running_mean", 3, 5),
    "aten.instance_norm.default": ("running_mean", 3, 5),
}


def check_writes(graph: fx.Graph, state: Mapping[fx.Node, str]) -> None:
    """Raise CaptureError if a node writes state, or writes what a later node still reads.

    state: placeholders and get_attr nodes with words for each, such as "buffer 'count'". Every
    node counts, those without readers too.
    """
    owner: dict[fx.Node, fx.Node] = {}
    position = {n: i for i, n in enumerate(graph.nodes)}
    for node in graph.nodes:
        owner[node] = _aliased(node, owner)
        _check_statistics(node, state)
        for written in written_arguments(node):
            root = owner[written]
            if root in state:
                raise CaptureError(
                    f"%{node.name}: {node.target} writes {state[root]}; a Graph holds no state, "
                    "return the new value instead"
                )
            for alias, reader in _later_readers(node, root, owner, position):
                raise CaptureError(
                    f"%{node.name}: {node.target} overwrites %{written.name}, and %{reader.name} "
                    f"still reads it as %{alias.name}; use the op that returns a new tensor"
                )


def written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """The values whose cells a node overwrites, by its schema."""
    for argument, value in schema_arguments(node):
        writes = argument.alias_info is not None and argument.alias_info.is_write
        if writes and str(node.target).split(".")[1] not in VIEWS_IN_PLACE:
            yield from _nodes(value)


def twin(node: fx.Node) -> Any:
    """The op to import for a node: its functional twin if it works in place, else its own.

    Raises CaptureError where there is none, or where the twin would give another dtype.
    """
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return target
    packet = target.overloadpacket.__name__
    space = getattr(torch.ops, target.namespace)
    found = getattr(getattr(space, packet.removesuffix("_"), None), target._overloadname, None)
    if found is None or not packet.endswith("_"):
        raise CaptureError(
            f"%{node.name}: {target} works in place and has no functional twin; write the model "
            "with an op that returns a new tensor"
        )
    _check_same_result(node, found)
    return found


def schema_arguments(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """Each argument of the schema that the call gives, with the value given."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return
    for i, argument in enumerate(schema.arguments):
        if i < len(node.args) and not argument.kwarg_only:
            yield argument, node.args[i]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _aliased(node: fx.Node, owner: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """The node whose memory this one's result lies in, itself if it has its own."""
    if node.target is operator.getitem or str(node.target) in SILENT_ALIASES:
        return owner[node.args[0]]  # type: ignore[index]
    for argument, value in schema_arguments(node):
        if argument.alias_info is not None:
            for source in _nodes(value):
                return owner[source]
    return node


def _later_readers(
    node: fx.Node,
    root: fx.Node,
    owner: Mapping[fx.Node, fx.Node],
    position: Mapping[fx.Node, int],
) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Names given before `node` to memory of `root`, each with a reader after `node`."""
    for alias in (n for n in owner if owner[n] is root and n is not node):
        for reader in alias.users:
            if position[reader] > position[node]:
                yield alias, reader


def _check_statistics(node: fx.Node, state: Mapping[fx.Node, str]) -> None:
    told = TRAINING_FLAG.get(str(node.target))
    if told is None:
        return
    what, buffer, flag = told
    if len(node.args) > flag and node.args[flag] is True and node.args[buffer] in state:
        raise CaptureError(
            f"%{node.name}: {node.target} in training mode writes {state[node.args[buffer]]} "  # type: ignore[index]
            f"({what}); export the model in eval mode"
        )


def _check_same_result(node: fx.Node, functional: Any) -> None:
    """An in-place op keeps its operand's dtype; its twin promotes."""
    values = [value for n in node.all_input_nodes if (value := n.meta.get("val")) is not None]
    if len({v.dtype for v in values if isinstance(v, torch.Tensor)}) < 2:
        return
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    with values[0].fake_mode:
        made = functional(*args, **kwargs).dtype
    for written in written_arguments(node):
        kept = written.meta["val"].dtype
        if made != kept:
            raise CaptureError(
                f"%{node.name}: {node.target} keeps {kept}, {functional} would give {made}; "
                "convert the operands to one dtype first"
            )


def _nodes(value: Any) -> Iterable[fx.Node]:
    if isinstance(value, fx.Node):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(v for v in value if isinstance(v, fx.Node))
    return ()
