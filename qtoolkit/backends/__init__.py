"""The backends by name: each a table of kernels and a device, imported when first asked for."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from qtoolkit.errors import UnknownName
from qtoolkit.kernel import Kernel

BACKENDS: Mapping[str, str] = {
    "reference": "qtoolkit.backends.reference",
    "numba": "qtoolkit.backends.numba_cpu",
}


def kernels(backend: str) -> Mapping[str, tuple[Kernel, ...]]:
    """A backend's kernels by op, preferred first."""
    table: Mapping[str, tuple[Kernel, ...]] = _module(backend).KERNELS
    return table


def device(backend: str) -> str:
    """What a backend runs on, in words."""
    return str(_module(backend).device())


def _module(backend: str) -> ModuleType:
    if backend not in BACKENDS:
        raise UnknownName(f"backend {backend!r}; choose one of {', '.join(BACKENDS)}")
    return import_module(BACKENDS[backend])
