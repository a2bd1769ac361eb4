"""Where the folders that ship beside the code are: notebooks and shaders."""

from pathlib import Path
from typing import Literal

from qtoolkit.errors import MissingDependency

PACKAGE = Path(__file__).resolve().parent


def shipped(folder: Literal["notebooks", "shaders"]) -> Path:
    """The folder: inside an installed package, beside the package in a checkout.

    Raises MissingDependency if the installation lost it.
    """
    inside = PACKAGE / folder
    if inside.is_dir():
        return inside
    root = checkout()
    if root is not None and (root / folder).is_dir():
        return root / folder
    raise MissingDependency(
        f"{folder}/ is missing from the qtoolkit at {PACKAGE}; reinstall qtoolkit, or restore the "
        f"folder beside {PACKAGE.name}/"
    )


def checkout() -> Path | None:
    """The repository this code is run from, or None for an installed package."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() else None
