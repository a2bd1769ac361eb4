"""From torch to Graph: export a module, import any exported program, run the float program."""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from qtoolkit.errors import BadInput, CaptureError, FormatError
from qtoolkit.execution import Run, match_inputs
from qtoolkit.graph import Graph, Ref, value_name
from qtoolkit.kernel import Array
from qtoolkit.program.chatter import first_line, quiet
from qtoolkit.program.translate import as_array, import_graph_module, import_program

__all__ = [
    "capture",
    "export",
    "import_graph_module",
    "import_program",
    "load_pt2",
    "quiet",
    "read_pt2",
    "run_float",
    "save_pt2",
]


def export(module: torch.nn.Module | ExportedProgram, example: Any) -> ExportedProgram:
    """Export a module in eval mode, undecomposed, for the shapes of the example inputs.

    An exported program is returned as it is. example: a tuple of the forward's arguments, or one
    tensor. Raises CaptureError for a module in training mode and, in one line, for whatever keeps
    torch from exporting it.
    """
    if isinstance(module, ExportedProgram):
        return module
    name = type(module).__name__
    training = [path or "the module itself" for path, m in module.named_modules() if m.training]
    if training:
        raise CaptureError(
            f"{name} is in training mode ({training[0]}); call .eval() on it before capture"
        )
    args = example if isinstance(example, tuple) else (example,)
    # torch takes one tensor given twice for one input; a copy of each keeps the inputs apart.
    args = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, args)
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(module, args)
    # torch raises anything here, from its own errors to those of the model's forward.
    except Exception as why:
        raise CaptureError(f"{name}: torch cannot export it: {first_line(why)}") from why


def capture(module: torch.nn.Module, example: Any) -> Graph:
    """The float Graph of a module in eval mode, traced with the example inputs."""
    return import_program(export(module, example))


def save_pt2(program: ExportedProgram, path: str | os.PathLike[str]) -> None:
    """Write an exported program as a .pt2 file."""
    with quiet():
        torch.export.save(program, path)


def read_pt2(path: str | os.PathLike[str]) -> ExportedProgram:
    """Read a .pt2 program. Raises FormatError, in one line, for a file torch cannot read."""
    source = Path(path)
    if not source.is_file():
        raise BadInput(f"{source}: no such file")
    try:
        with quiet():
            # Registers quantized_decomposed.*, which a program of any PT2E quantizer calls.
            import torch.ao.quantization.fx._decomposed

            return torch.export.load(source)
    # A damaged file surfaces as anything from BadZipFile to KeyError.
    except Exception as why:
        raise FormatError(
            f"{source}: torch cannot read this .pt2 ({first_line(why)}); save it again with "
            "torch.export.save"
        ) from why


def load_pt2(path: str | os.PathLike[str]) -> Graph:
    """The Graph of a .pt2 file, float or quantized by anyone."""
    return import_program(read_pt2(path))


def run_float(program: torch.nn.Module | ExportedProgram, x: Any) -> Run:
    """Run the float program in torch, node by node, and keep every tensor by its node's name.

    x: one array or tensor, a (nested) tuple of them, or a mapping by input name. A module is
    exported first. Raises ShapeError for inputs of another shape or dtype than was captured.
    """
    if not isinstance(program, ExportedProgram):
        program = export(program, pytree.tree_map(torch.as_tensor, x))
    graph = import_program(program)
    given = x if isinstance(x, Mapping) else pytree.tree_leaves(x)
    tensors = {
        name: torch.from_numpy(array.copy())
        for name, array in zip(graph.inputs, match_inputs(graph, given), strict=True)
    }
    keep: dict[str, Array] = {}
    seconds: dict[str, float] = {}
    with torch.no_grad(), quiet():
        _Recorder(program, tensors, keep, seconds).run(enable_io_processing=False)
    device = f"torch {torch.__version__.partition('+')[0]}, CPU, {torch.get_num_threads()} threads"
    known = {name: value for name, value in keep.items() if name.partition("#")[0] in graph}
    return Run("torch", device, graph, known, seconds)


class _Recorder(torch.fx.Interpreter):
    """Runs an exported program with its parameters lifted, copying each value as it is made.

    The copy matters: an in-place op later in the program overwrites its input.
    """

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Mapping[str, torch.Tensor],
        keep: dict[str, Array],
        seconds: dict[str, float],
    ) -> None:
        super().__init__(program.graph_module, garbage_collect_values=True)
        self._lifted = lifted_tensors(program)
        self._inputs = inputs
        self._keep = keep
        self._seconds = seconds

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "placeholder":
            value = self._lifted.get(n.name, self._inputs.get(n.name))
            if n.name in self._inputs:
                self._record(n.name, value)
            return value
        start = perf_counter()
        value = super().run_node(n)
        if n.op == "call_function":
            self._seconds[n.name] = perf_counter() - start
            self._record(n.name, value)
        return value

    def _record(self, name: str, value: Any) -> None:
        results = value if isinstance(value, tuple | list) else (value,)
        for i, result in enumerate(results):
            if isinstance(result, torch.Tensor):
                self._keep[value_name(Ref(name, i))] = as_array(result)


def lifted_tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The parameters, buffers and constants of a program by the name of their placeholder."""
    signature = program.graph_signature
    find: Callable[[str], Any] = lambda target: (  # noqa: E731
        program.state_dict[target] if target in program.state_dict else program.constants[target]
    )
    named = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    return {placeholder: find(target) for placeholder, target in named.items()}


def input_names(module: torch.nn.Module | ExportedProgram) -> tuple[str, ...]:
    """The names of forward's arguments, or of an exported program's inputs."""
    if isinstance(module, ExportedProgram):
        return tuple(module.graph_signature.user_inputs)
    return tuple(inspect.signature(module.forward).parameters)


def float_function(module: torch.nn.Module | ExportedProgram) -> Callable[[Any], Array]:
    """The module as a function from a tuple of arguments to its first output, as an array."""
    call = module.module(check_guards=False) if isinstance(module, ExportedProgram) else module

    def forward(x: Any) -> Array:
        with torch.no_grad():
            return as_array(pytree.tree_leaves(call(*x))[0])

    return forward
