"""Graphs on disk: a zip of one JSON document and one .npy per constant, no pickle.

Format 1. Later releases read every earlier format.
"""

import json
import math
import os
import zipfile
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from qtoolkit.errors import BadInput, FormatError, QtoolkitError
from qtoolkit.graph import Arg, Const, Constant, Dim, DType, Graph, Node, Ref, TensorType, Where
from qtoolkit.layout import Reps, RepSet, TensorRepr

FORMAT = 1
SUFFIX = ".qtgraph"


def save(graph: Graph, path: str | os.PathLike[str]) -> Path:
    """Write a graph, whole or not at all; return the path. The usual suffix is .qtgraph."""
    target = Path(path)
    if target.is_dir():
        raise BadInput(f"{target} is a folder; give a file name, such as {target / 'net.qtgraph'}")
    if not target.parent.is_dir():
        raise BadInput(f"{target.parent}: no such folder; create it first")
    names = sorted(graph.constants)
    document = _write_graph(graph, names)
    with NamedTemporaryFile(dir=target.parent, prefix=target.name, delete=False) as file:
        try:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr("graph.json", json.dumps(document, separators=(",", ":")))
                for i, name in enumerate(names):
                    array = graph.constants[name].array
                    if array is not None:
                        with archive.open(f"{i}.npy", "w", force_zip64=True) as out:
                            np.lib.format.write_array(out, array, allow_pickle=False)
            file.flush()
            os.replace(file.name, target)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    return target


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Read what save wrote. Raises FormatError for a damaged file or an unknown format."""
    source = Path(path)
    if not source.is_file():
        raise BadInput(f"{source}: no such file")
    try:
        with zipfile.ZipFile(source) as archive:
            document = json.loads(archive.read("graph.json"))
            if document.get("format") != FORMAT:
                raise FormatError(
                    f"{source}: graph format {document.get('format')!r}; this release reads "
                    f"format {FORMAT}"
                )
            return _read_graph(document, archive).check()
    except QtoolkitError:
        raise
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, AttributeError) as why:
        raise FormatError(
            f"{source}: not a readable qtoolkit graph ({why}); save it again"
        ) from why


def _write_graph(graph: Graph, names: list[str]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "inputs": graph.inputs,
        "outputs": _write_arg(graph.outputs),
        "in_tree": graph.in_tree,
        "out_tree": graph.out_tree,
        "constants": [
            [n, _write_type(graph.constants[n].type), graph.constants[n].array is not None]
            for n in names
        ],
        "nodes": [_write_node(n) for n in graph.nodes],
    }


def _read_graph(document: dict[str, Any], archive: zipfile.ZipFile) -> Graph:
    constants: dict[str, Constant] = {}
    for i, (name, kind, kept) in enumerate(document["constants"]):
        declared, array = _read_type(kind), None
        if kept:
            with archive.open(f"{i}.npy") as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            array.setflags(write=False)
            if (array.shape, array.dtype.name) != (declared.shape, declared.dtype.value):
                raise FormatError(f"@{name} is {array.dtype}{list(array.shape)}, not {declared}")
        constants[str(name)] = Constant(declared, array)
    outputs = _read_arg(document["outputs"])
    if not isinstance(outputs, tuple):
        raise FormatError("outputs is not a list")
    return Graph(
        tuple(_read_node(n) for n in document["nodes"]),
        tuple(document["inputs"]),
        outputs,
        document["in_tree"],
        document["out_tree"],
        constants,
    )


def _write_node(node: Node) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": node.name,
        "op": node.op,
        "args": _write_arg(node.args),
        "types": [_write_type(t) for t in node.types],
        "origin": node.origin,
        "where": [node.where.module, node.where.source],
    }
    if node.kernel is not None:
        told["kernel"] = node.kernel
    if node.reps is not None:
        told["reps"] = {
            "inputs": [None if r is None else [str(x) for x in r] for r in node.reps.inputs],
            "outputs": [[str(x) for x in r] for r in node.reps.outputs],
            "ties": node.reps.ties,
        }
    return told


def _read_node(told: dict[str, Any]) -> Node:
    args = _read_arg(told["args"])
    if not isinstance(args, tuple):
        raise FormatError(f"%{told['name']}: args is not a list")
    reps = told.get("reps")
    return Node(
        str(told["name"]),
        str(told["op"]),
        args,
        tuple(_read_type(t) for t in told["types"]),
        tuple(map(str, told["origin"])),
        Where(*map(str, told["where"])),
        told.get("kernel"),
        None if reps is None else _read_reps(reps),
    )


def _read_reps(told: dict[str, Any]) -> Reps:
    def repset(names: list[str]) -> RepSet:
        return RepSet(TensorRepr.parse(n) for n in names)

    return Reps(
        tuple(None if r is None else repset(r) for r in told["inputs"]),
        tuple(repset(r) for r in told["outputs"]),
        tuple(tuple(map(int, tie)) for tie in told["ties"]),
    )


def _write_type(kind: TensorType) -> list[Any]:
    shape = [[d.name, d.low, d.high] if isinstance(d, Dim) else d for d in kind.shape]
    return [kind.dtype.value, shape]


def _read_type(told: list[Any]) -> TensorType:
    dtype, shape = told
    return TensorType(
        tuple(
            Dim(str(d[0]), int(d[1]), int(d[2])) if isinstance(d, list) else int(d) for d in shape
        ),
        DType(dtype),
    )


def _write_arg(arg: Arg) -> Any:
    match arg:
        case tuple():
            return [_write_arg(a) for a in arg]
        case Ref(node, index):
            return {"ref": [node, index]}
        case Const(name):
            return {"const": name}
        case DType():
            return {"dtype": arg.value}
        case complex():
            return {"complex": [arg.real, arg.imag]}
        case float() if not math.isfinite(arg):
            return {"float": str(arg)}
        case _:
            return arg


def _read_arg(told: Any) -> Arg:
    match told:
        case list():
            return tuple(_read_arg(a) for a in told)
        case {"ref": [str(node), int(index)]}:
            return Ref(node, index)
        case {"const": str(name)}:
            return Const(name)
        case {"dtype": str(name)}:
            return DType(name)
        case {"complex": [real, imag]}:
            return complex(real, imag)
        case {"float": str(value)}:
            return float(value)
        case None | bool() | int() | float() | str():
            return told
        case _:
            raise FormatError(f"unknown argument {told!r}")
