"""Hatchling's hook: a wheel ships all shader variants compiled, so its users need no compiler."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = "qtoolkit/shaders/spv"  # where qtoolkit.backends.vulkan.shaders looks inside a package


class CompiledShaders(BuildHookInterface):
    """Compiles into a temporary folder: building leaves the source tree as it was."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the variants to a wheel; not to an editable one: a checkout compiles on demand."""
        if version == "editable":
            return
        self.folder = TemporaryDirectory(prefix="qtoolkit-spv-")
        compile_variants(Path(self.root), Path(self.folder.name))
        build_data["force_include"][self.folder.name] = SHIPPED

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        if version != "editable":
            self.folder.cleanup()


def compile_variants(root: Path, into: Path) -> None:
    """Write all variants of the shaders of the checkout at `root`, named as they are looked for.

    The checkout's own modules tell which there are; they import numpy and platformdirs, and none of
    torch, numba and vulkan. Raises MissingDependency where there is no compiler.
    """
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(root))
    from qtoolkit.backends.vulkan.shaders import compiled, sealed, source, variant_key
    from qtoolkit.backends.vulkan.variants import variants

    folder = root / "shaders"
    for name, defines in variants():
        text = source(name, defines, folder)
        words = compiled(text, folder, name)
        (into / f"{name}-{variant_key(text, folder)}.spv").write_bytes(sealed(words))
