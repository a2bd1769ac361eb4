"""Notebooks: a question, parameters, imports, then calls and nothing else; and they run."""

import ast
import os
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
TOUR = ROOT / "notebooks" / "00_tour.ipynb"
LOGIC = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If,
    ast.Try, ast.With, ast.comprehension,
)  # fmt: skip


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code(path: Path) -> list[Any]:
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def parsed(source: str) -> ast.Module:
    """The Python of a cell, its magics left out."""
    return ast.parse("\n".join(x for x in source.splitlines() if not x.startswith("%")))


def test_there_is_a_tour():
    assert TOUR in NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_valid_and_its_title_is_a_question(path):
    notebook = read(path)
    nbformat.validate(notebook)
    first = notebook.cells[0]
    assert first.cell_type == "markdown"
    title = first.source.splitlines()[0]
    assert title.startswith("# ")
    assert title.endswith("?")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_stored_without_outputs(path):
    for cell in code(path):
        assert cell.outputs == []
        assert cell.execution_count is None
    assert "widgets" not in read(path).metadata


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_begins_with_parameters_and_imports(path):
    parameters, imports, *_ = code(path)
    assert parameters.metadata.get("tags") == ["parameters"]
    assert all(isinstance(s, ast.Assign) for s in parsed(parameters.source).body)
    assert all(isinstance(s, ast.Import | ast.ImportFrom) for s in parsed(imports.source).body)
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code(path)) == 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_holds_calls_and_no_logic(path):
    for cell in code(path):
        found = [type(n).__name__ for n in ast.walk(parsed(cell.source)) if isinstance(n, LOGIC)]
        assert not found, cell.source
        imported = [n for n in ast.walk(parsed(cell.source)) if isinstance(n, ast.Import)]
        assert not imported or cell is code(path)[1] or cell.source == code(path)[1].source


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "weights"), [("digits-cnn", "per-channel"), ("mlp", "per-tensor")]
)
def test_the_tour_runs_without_an_error_or_a_warning(model, weights, tmp_path, monkeypatch):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", path)
    done = papermill.execute_notebook(
        TOUR,
        tmp_path / "tour.ipynb",
        {"model": model, "weights": weights},
        progress_bar=False,
        cwd=tmp_path,
    )
    outputs = [output for cell in done.cells for output in cell.get("outputs", [])]
    assert not [o.text for o in outputs if o.get("name") == "stderr"]
    assert sum("image/png" in o.get("data", {}) for o in outputs) == figures()
    assert "all equal" in "".join(o.text for o in outputs if o.get("name") == "stdout")


def figures() -> int:
    """How many cells of the tour draw."""
    return sum("qt.draw." in c.source and c.source.endswith(";") for c in code(TOUR))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["05_repsets", "06_transitions"])
def test_a_placement_notebook_runs_and_every_widget_leaves_a_picture(name, tmp_path, monkeypatch):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", path)
    source = ROOT / "notebooks" / f"{name}.ipynb"
    done = papermill.execute_notebook(
        source, tmp_path / f"{name}.ipynb", {"model": "mlp"}, progress_bar=False, cwd=tmp_path
    )
    for cell in done.cells:
        outputs = cell.get("outputs", [])
        assert not [o.text for o in outputs if o.get("name") == "stderr"]
        pictures = sum("image/png" in o.get("data", {}) for o in outputs)
        drawn = cell.source.rstrip().endswith(";") or "qt.widgets." in cell.source
        assert pictures == (1 if cell.cell_type == "code" and drawn else 0), cell.source


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"), [("01_capture", "digits-cnn"), ("02_quantize", "odd-channels")]
)
def test_a_notebook_of_the_front_runs_and_draws(name, model, tmp_path, monkeypatch):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", path)
    source = ROOT / "notebooks" / f"{name}.ipynb"
    done = papermill.execute_notebook(
        source, tmp_path / f"{name}.ipynb", {"model": model}, progress_bar=False, cwd=tmp_path
    )
    outputs = [output for cell in done.cells for output in cell.get("outputs", [])]
    assert not [o.text for o in outputs if o.get("name") == "stderr"]
    drawn = sum(c.source.rstrip().endswith(";") for c in code(source))
    assert sum("image/png" in o.get("data", {}) for o in outputs) == drawn > 0
