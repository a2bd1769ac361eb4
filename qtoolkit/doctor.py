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

PACKAGES = (
    "numpy", "numba", "llvmlite", "torch", "torchao", "vulkan", "matplotlib", "jupyterlab",
    "papermill", "pandas", "scikit-image", "scikit-learn", "executorch",
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
DEVICE_TYPES = ("other", "integrated GPU", "discrete GPU", "virtual GPU", "CPU")
CPU_DEVICE = 4


@dataclass(frozen=True, slots=True)
class VulkanDevice:
    """One Vulkan device; `cpu` is true for software such as lavapipe."""

    name: str
    kind: str
    cpu: bool


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
    vulkan: tuple[VulkanDevice, ...]
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
        devices = [f"{d.name} ({'software on the CPU' if d.cpu else d.kind})" for d in self.vulkan]
        lines.append(f"Vulkan       {'; '.join(devices) or 'no device'}")
        lines += [f"missing      {m.what}, for {m.purpose}: {m.remedy}" for m in self.missing]
        return "\n".join(lines if self.missing else [*lines, "missing      nothing"])


def examine() -> Diagnosis:
    """Look at the machine; nothing that is missing makes this fail."""
    devices, trouble = vulkan_devices()
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
        devices,
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


def vulkan_devices() -> tuple[tuple[VulkanDevice, ...], tuple[Missing, ...]]:
    """The Vulkan devices, and what keeps more of them from being found."""
    loader = Missing(
        "a Vulkan loader or driver", "the Vulkan backend",
        "sudo apt-get install libvulkan1 mesa-vulkan-drivers",
    )  # fmt: skip
    if find_spec("vulkan") is None:
        remedy = "python -m pip install 'qtoolkit[vulkan]'"
        return (), (Missing("the Python package vulkan", "the Vulkan backend", remedy),)
    try:
        import vulkan as vk
    except OSError:
        return (), (loader,)
    try:
        instance = vk.vkCreateInstance(vk.VkInstanceCreateInfo(), None)
    except vk.VkError:
        return (), (loader,)
    try:
        physical = vk.vkEnumeratePhysicalDevices(instance)
        found = [vk.vkGetPhysicalDeviceProperties(d) for d in physical]
        devices = tuple(
            VulkanDevice(p.deviceName, DEVICE_TYPES[p.deviceType], p.deviceType == CPU_DEVICE)
            for p in found
        )
    except vk.VkError:
        devices = ()
    finally:
        vk.vkDestroyInstance(instance, None)
    return devices, () if devices else (loader,)


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((x.partition(":")[2].strip() for x in lines if x.split(":")[0].strip() == key), "")
