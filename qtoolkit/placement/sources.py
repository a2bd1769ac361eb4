"""What can be placed, from its name: recorded runs, saved graphs, programs and models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qtoolkit import pipeline
from qtoolkit.errors import BadInput, MissingDependency, UnknownName
from qtoolkit.graph import Graph
from qtoolkit.interop.executorch import live
from qtoolkit.interop.executorch.recorded import Delegate, load_recorded, read_delegate

AS = ("executorch", "qtoolkit")
GRAPHS = (".pt2", ".qtgraph")


@dataclass(frozen=True, slots=True)
class Source:
    """Graphs to place, and what ExecuTorch left to the CPU: (node, target, reason).

    outcomes: what ExecuTorch made of each graph, where it was asked; else empty.
    """

    graphs: tuple[Graph | Delegate, ...]
    left: tuple[tuple[str, str, str], ...] = ()
    outcomes: tuple[Mapping[str, Any], ...] = ()


def is_recorded(name: str) -> bool:
    """A file of a recorded run, which only ExecuTorch's rules fit by default."""
    return Path(name).suffix == ".json"


def read_source(name: str, eyes: str, weights: str = "per-channel") -> Source:
    """What to place: a recorded run (.json), a .pt2, a saved graph, or a model of the table.

    A model is quantized first, with `weights`. eyes 'executorch' lowers a model or program by
    ExecuTorch's own passes, in a process of its own. Raises MissingDependency without the package,
    BadInput for a saved graph, which ExecuTorch cannot read, and whatever loading raises.
    """
    if eyes not in AS:
        raise UnknownName(f"--as {eyes!r}; choose {' or '.join(AS)}")
    suffix = Path(name).suffix
    if is_recorded(name):
        return Source(load_recorded(name))
    if eyes == "executorch":
        missing = live.available()
        if missing is None and suffix == ".qtgraph":
            raise BadInput(f"{name}: ExecuTorch reads programs of torch; give it a .pt2")
        return _lowered(name, weights)
    return Source((read_graph(name, weights),))


def read_graph(name: str, weights: str = "per-channel") -> Graph:
    """The graph of a .pt2 or .qtgraph file, or of a model of the table, quantized."""
    if Path(name).suffix in GRAPHS:
        return pipeline.load(name)
    from qtoolkit import models
    from qtoolkit.quantizer import quantize

    model = models.load(name)
    return quantize(model.module, model.example, model.calibration, weights)


def lowered(program: Any) -> Source:
    """Lower an exported program by ExecuTorch's passes: its delegates before placement, and what
    it made of them. Raises MissingDependency without the package.
    """
    from qtoolkit.program import save_pt2

    with TemporaryDirectory() as folder:
        path = Path(folder) / "program.pt2"
        save_pt2(program, path)
        return _recorded(live.lower(path))


def _lowered(name: str, weights: str) -> Source:
    missing = live.available()
    if missing is not None:
        raise MissingDependency(missing)
    if Path(name).suffix == ".pt2":
        return _recorded(live.lower(name))
    from qtoolkit import models
    from qtoolkit.quantizer import quantized_program

    model = models.load(name)
    return lowered(quantized_program(model.module, model.example, model.calibration, weights))


def _recorded(run: Mapping[str, Any]) -> Source:
    delegates: Sequence[Mapping[str, Any]] = run["delegates"]
    left = tuple(
        (str(op["name"]), str(op["target"]), str(op["reason"]))
        for op in run["partition"]["undelegated"]
    )
    graphs = tuple(read_delegate(d, f"delegate {i}") for i, d in enumerate(delegates))
    return Source(graphs, left, tuple(delegates))
