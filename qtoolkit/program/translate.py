"""Turning torch's fx graphs into a Graph: names kept, arguments in schema order, places noted."""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from qtoolkit.errors import CaptureError, ShapeError
from qtoolkit.graph import Arg, Const, Constant, DType, Graph, Node, Ref, TensorType, Where, leaves
from qtoolkit.kernel import Array
from qtoolkit.program.writes import check_writes, twin

DTYPES = frozenset(d.value for d in DType)
NOBODY: Mapping[str, Any] = {}
# With static shapes it always holds, and it has no result.
DROPPED = ("aten._assert_tensor_metadata.default",)
QDQ = re.compile(r"quantized_decomposed\.(de)?quantize_")
FRAME = re.compile(r'File "(.+?)", line (\d+)')
INSIDE_TORCH = re.compile(r"[/\\](site|dist)-packages[/\\]torch(ao)?[/\\]")
TORCH_FOLDER = str(PurePath(torch.__file__).parent)


def import_program(program: ExportedProgram) -> Graph:
    """Import an exported program as a Graph; any op, quantized by anyone or not.

    Raises CaptureError where it writes a buffer or an input, ShapeError for a dynamic dimension.
    """
    graph, signature = program.graph_module.graph, program.graph_signature
    targets = {s.arg.name: s for s in signature.input_specs if s.arg is not None}
    state: dict[fx.Node, str] = {}
    bound: dict[fx.Node, torch.Tensor] = {}
    names: dict[fx.Node, str] = {}
    for node in graph.find_nodes(op="placeholder"):
        spec = targets[node.name]
        state[node] = f"{WORDS.get(spec.kind, 'input')} {spec.target or node.name!r}"
        if spec.kind in WORDS and spec.target is not None:
            source = program.state_dict if spec.target in program.state_dict else program.constants
            bound[node], names[node] = source[spec.target], spec.target
    for out in signature.output_specs:
        if out.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            raise CaptureError(
                f"%{out.arg.name} is written to {out.target!r}, a buffer or input of the program; "
                "a Graph holds no state, return the new value instead"
            )
    specs = program.call_spec
    return _Translation(graph, state, bound, names).graph(specs.in_spec, specs.out_spec)


WORDS = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}


def import_graph_module(
    module: fx.GraphModule,
    example: Any,
    origins: Mapping[str, tuple[str, ...]] = NOBODY,
    constants: Mapping[str, str] = NOBODY,
    specs: tuple[Any, Any] = (None, None),
) -> Graph:
    """Import a GraphModule as it stands, for instance what convert_pt2e returned.

    origins: for a node's name, the captured nodes it computes (itself, if not told). constants:
    names to give to attributes. Types that no node's meta holds are found by running fake tensors
    of the example's shapes through the module. specs: input and output pytree specs to keep.
    """
    find_types(module, example)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    bound: dict[fx.Node, torch.Tensor] = {}
    names: dict[fx.Node, str] = {}
    state = {n: f"input {n.name!r}" for n in module.graph.find_nodes(op="placeholder")}
    for node in module.graph.find_nodes(op="get_attr"):
        value = tensors.get(str(node.target))
        if value is None:
            value = operator.attrgetter(str(node.target))(module)
        if isinstance(value, torch.Tensor):
            bound[node], names[node] = value, constants.get(node.target, node.target)
            state[node] = f"attribute {node.target!r}"
    return _Translation(module.graph, state, bound, names, origins).graph(*specs)


def find_types(module: fx.GraphModule, example: Any) -> None:
    """Give every node a meta 'val', running fake tensors through the module if one has none."""
    told = ("placeholder", "call_function")
    if all("val" in n.meta for n in module.graph.nodes if n.op in told):
        return
    from torch._subclasses import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    args = example if isinstance(example, tuple) else (example,)
    with torch.no_grad():
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        FakeTensorProp(module, mode).propagate(*pytree.tree_leaves(args))


class _Translation:
    """One fx graph on its way to a Graph."""

    def __init__(
        self,
        graph: fx.Graph,
        state: Mapping[fx.Node, str],
        bound: Mapping[fx.Node, torch.Tensor],
        names: Mapping[fx.Node, str],
        origins: Mapping[str, tuple[str, ...]] = NOBODY,
    ) -> None:
        check_writes(graph, state)
        self._fx = graph
        self._bound = bound
        self._origins = origins
        self._const = _unique(names, bound)
        self._env: dict[fx.Node, Arg] = {}
        self._nodes: dict[str, Node] = {}

    def graph(self, in_spec: Any, out_spec: Any) -> Graph:
        outputs: tuple[Arg, ...] = ()
        for node in self._fx.nodes:
            if node.op == "output":
                returned = self._argument(node.args[0])
                outputs = returned if isinstance(returned, tuple) else (returned,)
            else:
                self._add(node)
        read = {c.name for n in self._nodes.values() for c in n.consts()}
        read |= {a.name for a in leaves(outputs) if isinstance(a, Const)}
        constants = {
            self._const[node]: Constant.of(as_array(tensor))
            for node, tensor in self._bound.items()
            if self._const[node] in read
        }
        nodes = tuple(self._nodes.values())
        inputs = tuple(n.name for n in nodes if n.op == "input")
        trees = ["" if s is None else pytree.treespec_dumps(s) for s in (in_spec, out_spec)]
        return Graph(nodes, inputs, outputs, trees[0], trees[1], constants).check()

    def _add(self, node: fx.Node) -> None:
        if node in self._bound:
            self._env[node] = Const(self._const[node])
        elif node.op == "get_attr":
            self._env[node] = str(node.target)
        elif node.op == "call_function" and str(node.target) not in DROPPED:
            self._call(node)
        elif node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
            self._keep(node, "input", ())
        elif node.op == "call_module" and node.users:
            raise CaptureError(
                f"%{node.name} calls the module {node.target}; export the model with torch.export"
            )

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            of = self._env[source]  # type: ignore[index]
            args: tuple[Arg, ...] = (of[index] if isinstance(of, tuple) else of, index)  # type: ignore[index, assignment]
            self._keep(node, "getitem", args)
            return
        target = twin(node)
        self._keep(node, str(target), tuple(self._arguments(node, target)))

    def _arguments(self, node: fx.Node, target: Any) -> Iterator[Arg]:
        """The arguments in schema order, defaults filled in, keyword-only ones too."""
        if not isinstance(target, torch._ops.OpOverload):
            yield from map(self._argument, (*node.args, *node.kwargs.values()))
            return
        for i, argument in enumerate(target._schema.arguments):
            if i < len(node.args):
                yield self._argument(node.args[i])
            elif argument.name in node.kwargs:
                yield self._argument(node.kwargs[argument.name])
            else:
                yield self._argument(_default(argument))

    def _argument(self, value: Any) -> Arg:
        if isinstance(value, fx.Node):
            return self._env.get(value)
        if isinstance(value, list | tuple):
            return tuple(map(self._argument, value))
        if isinstance(value, torch.dtype):
            name = str(value).removeprefix("torch.")
            return DType(name) if name in DTYPES else name
        if value is None or isinstance(value, bool | int | float | complex | str):
            return value
        return str(value).removeprefix("torch.")

    def _keep(self, node: fx.Node, op: str, args: tuple[Arg, ...]) -> None:
        types = tuple(_types(node))
        where = Where(_module_path(node), _source_line(node))
        self._nodes[node.name] = Node(
            node.name, op, args, types, self._origin(node, op, args), where
        )
        several = isinstance(node.meta.get("val"), tuple | list)
        results = tuple(Ref(node.name, i) for i in range(len(types)))
        self._env[node] = results if several else Ref(node.name)

    def _origin(self, node: fx.Node, op: str, args: tuple[Arg, ...]) -> tuple[str, ...]:
        """A quantize or dequantize stands for the value it carries; that of a constant for none."""
        if node.name in self._origins or not QDQ.match(op):
            return self._origins.get(node.name, (node.name,))
        carried = args[0]
        return self._nodes[carried.node].origin if isinstance(carried, Ref) else ()


def as_array(tensor: torch.Tensor) -> Array:
    """A copy of the tensor's values; bfloat16, which NumPy lacks, as float32."""
    plain = tensor.detach().cpu()
    plain = plain.float() if plain.dtype == torch.bfloat16 else plain
    array: Array = np.array(plain.resolve_conj().resolve_neg().numpy(), order="C", copy=True)
    return array


def _types(node: fx.Node) -> Iterator[TensorType]:
    value = node.meta.get("val")
    if value is None:
        return
    for i, result in enumerate(value if isinstance(value, tuple | list) else (value,)):
        if isinstance(result, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise ShapeError(
                f"%{node.name}: {node.target} gives {result}, a number known only when the "
                "program runs; export with static shapes and without data-dependent control"
            )
        if not isinstance(result, torch.Tensor):
            raise CaptureError(f"%{node.name}: result {i} of {node.target} is not a tensor")
        yield TensorType(tuple(_sizes(node, result)), _dtype(node, result))


def _sizes(node: fx.Node, value: torch.Tensor) -> Iterator[int]:
    for axis, size in enumerate(value.shape):
        if not isinstance(size, int):
            raise ShapeError(
                f"%{node.name}: dimension {axis} is dynamic ({_dim_words(size, value)}); export "
                "with a fixed size there"
            )
        yield int(size)


def _dim_words(size: torch.SymInt, value: Any) -> str:
    """The Dim as its author called it, with its bounds; the symbol where the name is lost."""
    shapes = value.fake_mode.shape_env
    symbol = size.node.expr
    sources = [s.name for s in shapes.var_to_sources.get(symbol, ())] if shapes else []
    words = [text for source in sources if (text := _debug_name(shapes, source))]
    bounds = shapes.var_to_range.get(symbol) if shapes else None
    told = words[0] if words else str(symbol)
    return f"Dim {told!r}" + (f" in {bounds.lower}..{bounds.upper}" if bounds else "")


def _debug_name(shapes: Any, source: Any) -> str | None:
    key = source() if callable(source) else source
    found = shapes.source_name_to_debug_name.get(key)
    return None if found is None else str(found)


def _dtype(node: fx.Node, value: torch.Tensor) -> DType:
    name = str(value.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise CaptureError(f"%{node.name}: dtype {name} has no counterpart here; convert it first")
    return DType(name)


def _default(argument: Any) -> Any:
    """The default of a schema argument; enumerations are numbers there."""
    value = argument.default_value
    if isinstance(value, int) and "MemoryFormat" in str(argument.real_type):
        return "contiguous_format"
    return value


def _unique(
    names: Mapping[fx.Node, str], bound: Mapping[fx.Node, torch.Tensor]
) -> dict[fx.Node, str]:
    """Names made safe for the text form; one name for each tensor, however often it is fetched."""
    taken: dict[str, int] = {}
    made: dict[fx.Node, str] = {}
    for node, name in names.items():
        plain = re.sub(r"[^\w.]", "_", name)
        while taken.setdefault(plain, id(bound[node])) != id(bound[node]):
            plain += "_"
        made[node] = plain
    return made


def _module_path(node: fx.Node) -> str:
    stack: Sequence[Any] = tuple((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def _source_line(node: fx.Node) -> str:
    """The innermost line outside torch, as 'net.py:31'."""
    found = ""
    for path, line in FRAME.findall(node.meta.get("stack_trace") or ""):
        if not INSIDE_TORCH.search(path) and not path.startswith(TORCH_FOLDER):
            found = f"{PurePath(path).name}:{line}"
    return found
