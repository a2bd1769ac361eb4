"""The backends by name: each a table of kernels and a device, imported when first asked for."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from qtoolkit.errors import MissingDependency, UnknownName
from qtoolkit.kernel import Kernel

BACKENDS: Mapping[str, str] = {
    "reference": "qtoolkit.backends.reference",
    "numba": "qtoolkit.backends.numba_cpu",
}
COMING = ("vulkan",)


def kernels(backend: str) -> Mapping[str, tuple[Kernel, ...]]:
    """A backend's kernels by op, preferred first.

    Raises UnknownName for a backend that is not there, MissingDependency where it needs a package
    that is not installed.
    """
    table: Mapping[str, tuple[Kernel, ...]] = _module(backend).KERNELS
    return table


def device(backend: str) -> str:
    """What a backend runs on, in words."""
    return str(_module(backend).device())


def _module(backend: str) -> ModuleType:
    names = ", ".join(BACKENDS)
    if backend in COMING:
        raise UnknownName(f"backend {backend!r} comes with the next release; choose one of {names}")
    if backend not in BACKENDS:
        raise UnknownName(f"backend {backend!r}; choose one of {names}")
    try:
        return import_module(BACKENDS[backend])
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package == "qtoolkit":
            raise
        raise MissingDependency(
            f"backend {backend!r} needs the package {package}: pip install {package}"
        ) from missing
