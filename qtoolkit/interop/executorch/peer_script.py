"""Run ExecuTorch's own Vulkan placement in a process of its own: one JSON request, one answer.

The only file that imports executorch, and inside functions alone. It imports nothing of qtoolkit,
so that it also runs by its path, in any environment that has executorch; live.py is its caller.

    {"mode": "place", "graphs": [{"texture_limits", "force_fp16", "pre"}, ...], "repeat": 1}
    {"mode": "lower", "program": "file.pt2", "texture_limits": [w, h, d] or null,
     "force_fp16": false}

Graphs have the form of tests/peer/placement/*.json. A node of "pre" may bring "users", the names of
its readers in the order in which fx holds them, where that is not the order of the graph: the
placement follows it.
"""

import copy
import importlib
import json
import logging
import math
import operator
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

VULKAN = "executorch.backends.vulkan"

# What executorch, torch and torchao hand out has no types here: nodes, graphs, ops.
Json = Any
Node = Any


def op_name(target: object) -> str:
    """Name a node's target as recordings do: "aten::add.Tensor", "et_vk::prepack", "getitem"."""
    if isinstance(target, str):
        return target
    name = getattr(target, "name", None)
    return str(name()) if callable(name) else str(getattr(target, "__name__", target))


class Ops:
    """Find the op that a recorded target names: the registry's own object where it has one."""

    def __init__(self) -> None:
        registry = importlib.import_module(f"{VULKAN}.op_registry").vulkan_supported_ops
        self._edge = importlib.import_module("executorch.exir.dialects._ops").ops.edge
        self._known = {op_name(key): key for key in registry if not isinstance(key, str)}
        for name, key in list(self._known.items()):
            if getattr(operator, name, None) is key:
                self._known[f"operator.{name}"] = key

    def find(self, name: str) -> Callable[..., object]:
        """Raises LookupError if no library that executorch loads defines the op."""
        if name not in self._known:
            space, _, rest = name.partition("::")
            packet, _, overload = rest.partition(".")
            try:
                self._known[name] = getattr(
                    getattr(getattr(self._edge, space), packet), overload or "default"
                )
            except (AttributeError, RuntimeError) as error:
                raise LookupError(f"no op is named {name!r}") from error
        found: Callable[..., object] = self._known[name]
        return found


class Tensors:
    """Fake tensors of recorded shapes and dtypes, each made once, with a fresh spec each time."""

    def __init__(self) -> None:
        fake_tensor = importlib.import_module("torch._subclasses.fake_tensor")
        self._mode = fake_tensor.FakeTensorMode()
        self._make_spec = importlib.import_module("executorch.exir.tensor").TensorSpec.from_tensor
        self._made: dict[tuple[Json, ...], tuple[Any, Any]] = {}

    def make(self, val: Mapping[str, Json]) -> tuple[Any, Any]:
        """Return the fake tensor and a fresh spec, which is where a placement writes."""
        import torch

        key = (*val["shape"], val["dtype"])
        if key not in self._made:
            with self._mode:
                tensor = torch.empty(val["shape"], dtype=getattr(torch, val["dtype"]))
            self._made[key] = (tensor, self._make_spec(tensor))
        tensor, spec = self._made[key]
        return tensor, copy.copy(spec)


def _decode(arg: Json, nodes: Mapping[str, Node]) -> Json:
    """Turn a recorded argument into what fx holds: {"n": name} a node, {"t": ...} torch's own."""
    import torch

    if isinstance(arg, list):
        return [_decode(a, nodes) for a in arg]
    if not isinstance(arg, dict):
        return arg
    if "n" in arg:
        return nodes[arg["n"]]
    text = str(arg["t"])
    return getattr(torch, text.removeprefix("torch.")) if text.startswith("torch.") else text


def _encode(arg: Json) -> Json:
    """Undo _decode."""
    import torch

    if isinstance(arg, (list, tuple)):
        return [_encode(a) for a in arg]
    if isinstance(arg, torch.fx.Node):
        return {"n": arg.name}
    if arg is None or isinstance(arg, (bool, int, float, str)):
        return arg
    return {"t": str(arg)}


def _encode_val(val: Json) -> Json:
    """Shape and dtype of a tensor, a list of such for several, None for what is none."""
    import torch

    if isinstance(val, (list, tuple)):
        return [_encode_val(v) for v in val]
    if not isinstance(val, torch.Tensor):
        return None
    shape = [s if isinstance(s, int) else str(s) for s in val.shape]
    return {"shape": shape, "dtype": str(val.dtype).removeprefix("torch.")}


def _encode_repr(node: Node) -> Json:
    """[storage, layout] by name, a list of such for several outputs, None where nothing is set."""
    spec = node.meta.get("spec")
    if isinstance(spec, (list, tuple)):
        found = [getattr(s, "etvk_node_repr", None) for s in spec]
        return [_repr_names(r) for r in found] if all(found) else None
    return _repr_names(getattr(spec, "etvk_node_repr", None))


def _repr_names(placed: Any) -> list[str] | None:
    return None if placed is None else [placed.storage_type.name, placed.memory_layout.name]


def record(graph: Any, *, placed: bool) -> list[dict[str, Json]]:
    """Write a graph's nodes down; `placed` adds representations, else the order of readers."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    nodes = []
    for node in graph.nodes:
        entry = {
            "name": node.name,
            "op": node.op,
            "target": op_name(node.target),
            "args": [] if node.op == "placeholder" else _encode(node.args),
            "val": _encode_val(node.meta.get("val")),
        }
        if node.kwargs:
            entry["kwargs"] = {k: _encode(v) for k, v in node.kwargs.items()}
        if node.meta.get("etvk_tensorref", False):
            entry["tensorref"] = True
        if placed and node.op != "output":
            entry["repr"] = _encode_repr(node)
        users = list(node.users)
        if not placed and users != sorted(users, key=order.__getitem__):
            entry["users"] = [user.name for user in users]
        nodes.append(entry)
    return nodes


def transitions(graph: Any, before: Iterable[str]) -> list[dict[str, Json]]:
    """List the copies a placement put in: the nodes whose names are not in `before`.

    bytes = numel * itemsize of the value copied, unpadded; in force_fp16 too as the graph has it.
    """
    known = frozenset(before)
    found = []
    for node in graph.nodes:
        if node.name in known:
            continue
        source, val = node.args[0], node.meta["val"]
        found.append(
            {
                "name": node.name,
                "src": source.name,
                "users": [user.name for user in node.users],
                "from": _encode_repr(source),
                "to": _encode_repr(node),
                "bytes": math.prod(int(s) for s in val.shape) * val.dtype.itemsize,
            }
        )
    return found


def build(nodes: Sequence[Mapping[str, Json]], ops: Ops, tensors: Tensors) -> Any:
    """Make a GraphModule of recorded nodes, with fake tensors and specs and no code to run.

    Raises LookupError for an unknown op, ValueError for a name that fx would not keep.
    """
    import torch

    graph = torch.fx.Graph()
    made: dict[str, Node] = {}
    for entry in nodes:
        kind, name = entry["op"], entry["name"]
        target = ops.find(entry["target"]) if kind == "call_function" else entry["target"]
        # A tuple, as fx holds arguments; what is a list among them stays a list.
        args = tuple(_decode(entry["args"], made))
        kwargs = {k: _decode(v, made) for k, v in entry.get("kwargs", {}).items()}
        node = graph.create_node(kind, target, args, kwargs, name=name)
        if node.name != name:
            raise ValueError(f"%{name}: the name is taken; fx would call it {node.name}")
        made[name] = node
        val = entry.get("val")
        if isinstance(val, list):
            made_all = [tensors.make(v) for v in val]
            node.meta["val"] = [tensor for tensor, _ in made_all]
            node.meta["spec"] = [spec for _, spec in made_all]
        elif val is not None:
            node.meta["val"], node.meta["spec"] = tensors.make(val)
        if entry.get("tensorref", False):
            node.meta["etvk_tensorref"] = True
            node.meta["spec"].const = True
    for entry in nodes:
        if "users" in entry:
            made[entry["name"]].users = {made[user]: None for user in entry["users"]}
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def place(request: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Place every graph of a request; what goes wrong in one is that one's answer."""
    ops, tensors = Ops(), Tensors()
    answers: list[dict[str, Json]] = []
    for graph in request["graphs"]:
        try:
            answers.append(_place_one(graph, int(request.get("repeat", 1)), ops, tensors))
        # Whatever upstream raises is what it answers, and is handed on as that.
        except Exception as error:  # noqa: BLE001
            answers.append({"error": f"{type(error).__name__}: {error}"})
    return answers


def _place_one(
    graph: Mapping[str, Json], repeat: int, ops: Ops, tensors: Tensors
) -> dict[str, Json]:
    """Seconds are the best of `repeat` runs of the pass alone, each on a graph built anew."""
    tag_pass = importlib.import_module(f"{VULKAN}._passes").TagMemoryMetaPass
    nodes = graph["pre"]["nodes"]
    best = math.inf
    for _ in range(max(1, repeat)):
        module = build(nodes, ops, tensors)
        tag = tag_pass(tuple(graph["texture_limits"]), force_fp16=graph["force_fp16"])
        start = time.perf_counter()
        tag.call(module)
        best = min(best, time.perf_counter() - start)
    return {
        "post": {"nodes": record(module.graph, placed=True)},
        "transitions": transitions(module.graph, (n["name"] for n in nodes)),
        "tag_seconds": best,
    }


def lower(request: Mapping[str, Json]) -> dict[str, Json]:
    """Lower an exported program for Vulkan as a user would, and write down what was placed.

    Upstream's own pass and operator check run; subclasses of them, put in their places in this
    process, note what they are given, answer or refuse.
    """
    import torch

    exir = importlib.import_module("executorch.exir")
    partitioner: Any = importlib.import_module(f"{VULKAN}.partitioner.vulkan_partitioner")
    preprocess: Any = importlib.import_module(f"{VULKAN}.vulkan_preprocess")
    # Loading a quantized program needs its ops defined.
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    importlib.import_module("torchao")

    delegates: list[dict[str, Json]] = []
    refusals: dict[str, str] = {}
    preprocess.TagMemoryMetaPass = _recording_pass(preprocess.TagMemoryMetaPass, delegates)
    partitioner.VulkanSupportedOperators = _recording_check(
        partitioner.VulkanSupportedOperators, refusals
    )
    options: dict[str, Json] = {}
    if request.get("texture_limits") is not None:
        options["texture_limits"] = tuple(request["texture_limits"])
    if request.get("force_fp16", False):
        options["force_fp16"] = True

    program = torch.export.load(request["program"])
    lowered = exir.to_edge_transform_and_lower(
        program,
        partitioner=[partitioner.VulkanPartitioner(options)],
        # An op outside core ATen is left undelegated with a reason; the check would end the run.
        compile_config=exir.EdgeCompileConfig(_check_ir_validity=False),
    )
    left = [
        {
            "target": op_name(node.target),
            "name": node.name,
            "reason": refusals.get(node.name, "supported, and in no partition"),
        }
        for node in lowered.exported_program().graph.nodes
        if node.op == "call_function"
        and node.target is not operator.getitem
        and op_name(node.target) != "executorch_call_delegate"
    ]
    return {
        "model": os.path.splitext(os.path.basename(request["program"]))[0],
        "options": options,
        "torch": torch.__version__,
        "executorch": importlib.import_module("importlib.metadata").version("executorch"),
        "partition": {"n_delegates": len(delegates), "undelegated": left},
        "delegates": delegates,
    }


def _recording_pass(upstream: Any, delegates: list[dict[str, Json]]) -> Any:
    """Make a subclass of upstream's placement that appends what it was given and made."""

    def call(self: Any, module: Any) -> Any:
        before = record(module.graph, placed=False)
        start = time.perf_counter()
        result = upstream.call(self, module)
        seconds = time.perf_counter() - start
        delegates.append(
            {
                "texture_limits": list(self.texture_limits),
                "force_fp16": bool(self.force_fp16),
                "pre": {"nodes": before},
                "post": {"nodes": record(result.graph_module.graph, placed=True)},
                "transitions": transitions(result.graph_module.graph, (n["name"] for n in before)),
                "tag_seconds": seconds,
            }
        )
        return result

    return type("RecordingPass", (upstream,), {"call": call})


def _recording_check(upstream: Any, refusals: dict[str, str]) -> Any:
    """Make a subclass of upstream's operator check that notes node name -> its reason to refuse."""

    def log_skip(self: Any, node: Node, reason: str) -> None:
        refusals[node.name] = reason
        upstream.log_skip(self, node, reason)

    return type("RecordingCheck", (upstream,), {"log_skip": log_skip})


MODES: dict[str, Callable[[Mapping[str, Json]], Json]] = {"place": place, "lower": lower}


def main() -> None:
    """Answer the request on stdin; the libraries' chatter goes to stderr, the answer to stdout."""
    answer_to = os.dup(1)
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    # Its import turns the root logger up to INFO, a line for every copy; first imported here, so
    # that what is last on stderr is what went wrong.
    importlib.import_module(f"{VULKAN}.partitioner.vulkan_partitioner")
    logging.getLogger().setLevel(logging.WARNING)
    try:
        answer = MODES[request["mode"]](request)
    # The caller reads the last line, and upstream's messages run over many.
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        sys.exit(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        json.dump(answer, out)


if __name__ == "__main__":
    main()
