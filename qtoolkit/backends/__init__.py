"""The backends by name: each a table of kernels and a device, imported when first asked for."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from qtoolkit.backends.engine import Engine
from qtoolkit.errors import MissingDependency, ShaderError, UnknownName, VulkanError
from qtoolkit.graph import Graph
from qtoolkit.kernel import Kernel

BACKENDS: Mapping[str, str] = {
    "reference": "qtoolkit.backends.reference",
    "numba": "qtoolkit.backends.numba_cpu",
    "vulkan": "qtoolkit.backends.vulkan",
}
# Targets that are run here for their names and routing; explore does not ask for them by itself.
CADENCE: Mapping[str, str] = {
    name: f"qtoolkit.backends.cadence:{name.upper()}"
    for name in ("generic", "hifi", "vision", "tie")
}
TARGETS: Mapping[str, str] = {**BACKENDS, **CADENCE}
DEVICES = ("vulkan",)  # those that run on a device of one's choice
DeviceChoice = int | str | None


def kernels(backend: str) -> Mapping[str, tuple[Kernel, ...]]:
    """A backend's kernels by op, preferred first.

    Raises UnknownName for a backend that is not there, MissingDependency where it needs a package
    that is not installed.
    """
    table: Mapping[str, tuple[Kernel, ...]] = _module(backend).KERNELS
    return table


def device(backend: str, choice: DeviceChoice = None) -> str:
    """What a backend runs on, in words; choice as in `load`."""
    return str(_module(backend).device(choice))


def unavailable(backend: str, choice: DeviceChoice = None) -> str | None:
    """Why a backend cannot run here (package, driver, device, compiler), or None if it can."""
    try:
        device(backend, choice)
        _module(backend).check()
    except (MissingDependency, UnknownName, VulkanError, ShaderError) as why:
        return str(why)
    return None


def available(choice: DeviceChoice = None) -> tuple[str, ...]:
    """The backends that can run here, reference first; vulkan if it has a device."""
    return tuple(
        name for name in BACKENDS if unavailable(name, choice if name in DEVICES else None) is None
    )


def texture_limit(backend: str, choice: DeviceChoice = None) -> int | None:
    """Cells that a 3D texture may have along an axis; None where there are no textures."""
    limit: int | None = _module(backend).texture_limit(choice)
    return limit


def load(
    backend: str, graph: Graph, chosen: Mapping[str, Kernel], choice: DeviceChoice = None
) -> Engine:
    """Bind every node's kernel; `chosen` gives the kernel of each node that has one.

    choice: a Vulkan device by index or by part of its name; None for the best. Raises UnknownName
    for a device that is not there, MissingDependency where none can be opened.
    """
    engine: Engine = _module(backend).load(graph, chosen, choice)
    return engine


def no_choice(backend: str, choice: DeviceChoice) -> None:
    """Raise UnknownName if a device was asked of a backend that has only the CPU."""
    if choice is not None:
        raise UnknownName(f"device {choice!r}: backend {backend!r} runs on the CPU alone")


def family(backend: str) -> str | None:
    """'cadence' for a target of that family, which takes the family's rewrites; else None."""
    return "cadence" if backend in CADENCE else None


def _module(backend: str) -> Any:
    if backend not in TARGETS:
        raise UnknownName(f"backend {backend!r}; choose one of {', '.join(TARGETS)}")
    try:
        return resolve_name(TARGETS[backend])
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package == "qtoolkit":
            raise
        raise MissingDependency(
            f"backend {backend!r} needs the package {package}: pip install {package}"
        ) from missing
