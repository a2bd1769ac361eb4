"""The Numba backend: compiled loops on the CPU, NumPy where values only move."""

import platform
from collections.abc import Mapping
from pathlib import Path

from llvmlite import binding

from qtoolkit.backends import DeviceChoice, no_choice
from qtoolkit.backends.engine import Engine, HostEngine
from qtoolkit.backends.numba_cpu import cells, conv, conv_last, matmul, moving, pool
from qtoolkit.backends.numba_cpu.bands import threads
from qtoolkit.graph import Graph
from qtoolkit.kernel import Kernel
from qtoolkit.ops import OPS

FAST: dict[str, tuple[Kernel, ...]] = {
    **conv.KERNELS,
    **conv_last.KERNELS,
    **matmul.KERNELS,
    **cells.KERNELS,
    **pool.KERNELS,
    **moving.KERNELS,
}

# Those of which the fast kernel refuses some cases: other dtypes, other ranks, floats.
PARTLY = (
    "quantize",
    "dequantize",
    "q8_avg_pool2d",
    "q8_adaptive_avg_pool2d",
    "aten.max_pool2d.default",
)


def _reference(op: str) -> Kernel:
    """The op's definition as a kernel: slow, and seen to be so by its name."""
    return Kernel("reference", op, moving.bind_reference(op), moving.plain_reps)


KERNELS: dict[str, tuple[Kernel, ...]] = {
    op: FAST.get(op, ()) + ((_reference(op),) if op in PARTLY or op not in FAST else ())
    for op in OPS
    if op != "getitem"
}


def device(choice: DeviceChoice = None) -> str:
    """The CPU, how many threads the loops may use, and the vector instructions they compile to."""
    return f"{_cpu_name()}, {threads()} threads, auto-vectorized for {vectors()}"


def vectors() -> str:
    """The widest vector extension LLVM finds on this CPU."""
    features = binding.get_host_cpu_features()
    known = ("avx512vnni", "avx512bw", "avxvnni", "avx2", "sse4.2", "sve2", "dotprod", "neon")
    return next((name for name in known if features.get(name)), "the baseline")


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def texture_limit(choice: DeviceChoice = None) -> None:
    """There are no textures on the CPU."""


def check() -> None:
    """Nothing beside the package is needed."""


def load(graph: Graph, chosen: Mapping[str, Kernel], choice: DeviceChoice = None) -> Engine:
    """Bind the kernels of a graph."""
    no_choice("numba", choice)
    return HostEngine(graph, chosen, device())
