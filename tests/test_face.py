"""The face: every name users type, cheap to import, and shadowed by no room."""

import importlib
import json
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import qtoolkit as qt

HEAVY = ("torch", "numba", "numpy", "vulkan", "pandas", "matplotlib")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_qtoolkit_imports_nothing_heavy() -> None:
    code = f"import sys, qtoolkit; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(code).strip() == "[]"


def test_no_room_shadows_a_function_of_the_face() -> None:
    for module in pkgutil.walk_packages(qt.__path__, "qtoolkit."):
        importlib.import_module(module.name)
    for name, (_, there) in qt.FACE.items():
        assert isinstance(getattr(qt, name), ModuleType) == (there is None), name
        assert there is None or callable(getattr(qt, name)), name


def test_a_wrong_name_lists_the_face() -> None:
    with pytest.raises(AttributeError, match="it has .*capture"):
        qt.quantise  # type: ignore[attr-defined]  # noqa: B018
    assert "compile" in dir(qt)


def test_rooms_below_five_run_without_torch() -> None:
    code = """
import sys, json
sys.modules["torch"] = None
import qtoolkit.execution, qtoolkit.comparison, qtoolkit.pipeline
from qtoolkit import backends
backends.kernels("reference"); backends.kernels("numba")
print(json.dumps(sorted(m for m in sys.modules if m.startswith("torch"))))
"""
    assert json.loads(python(code)) == ["torch"]
