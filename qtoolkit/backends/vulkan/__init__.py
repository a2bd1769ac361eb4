"""The Vulkan backend: compute shaders on a GPU or on lavapipe, the rest on the host.

An op that no shader computes has the kernel `host`, its definition run on the CPU between two
submissions: seen by its name, and by the values that cross over.
"""

import atexit
from collections.abc import Mapping
from threading import Lock

from qtoolkit.backends import DeviceChoice, reference
from qtoolkit.backends.engine import Engine
from qtoolkit.backends.vulkan import cells, matmul, moving, pool, weighted
from qtoolkit.backends.vulkan.device import Device, DeviceInfo, devices
from qtoolkit.backends.vulkan.dispatch import Bound, HostCall, Site
from qtoolkit.backends.vulkan.engine import VulkanEngine
from qtoolkit.backends.vulkan.shaders import spirv
from qtoolkit.backends.vulkan.variants import variants
from qtoolkit.errors import PlacementError
from qtoolkit.graph import Graph
from qtoolkit.kernel import Kernel
from qtoolkit.ops import OPS

__all__ = ["Device", "DeviceInfo", "devices"]

SHADERS: dict[str, tuple[Kernel, ...]] = {
    **weighted.KERNELS,
    **matmul.KERNELS,
    **cells.KERNELS,
    **pool.KERNELS,
    **moving.KERNELS,
}


def bind_host(site: Site) -> Bound:
    """The op's definition, between two submissions."""
    return HostCall(reference.bind(OPS[site.node.op], site.args))


KERNELS: dict[str, tuple[Kernel, ...]] = {
    op: (*SHADERS.get(op, ()), Kernel("host", op, bind_host, reference.reps)) for op in OPS
}


class Opened:
    """The devices in use, each opened once, by its index; closed as Python ends."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.by_choice: dict[DeviceChoice, Device] = {}
        self.by_index: dict[int, Device] = {}

    def __call__(self, choice: DeviceChoice = None) -> Device:
        """The device of that index or name; the best one for None."""
        with self.lock:
            known = self.by_choice.get(choice)
            if known is None or not known.open:
                known = self.by_choice[choice] = self._open(choice)
            return known

    def _open(self, choice: DeviceChoice) -> Device:
        device = Device(choice)
        other = self.by_index.get(device.info.index)
        if other is not None and other.open:
            device.close()
            return other
        atexit.register(device.close)
        self.by_index[device.info.index] = device
        return device


opened = Opened()


def device(choice: DeviceChoice = None) -> str:
    """The device in words; software is always called so."""
    return str(opened(choice))


def texture_limit(choice: DeviceChoice = None) -> int:
    """Cells that a 3D texture may have along an axis."""
    return opened(choice).limits.texture_extent


def check() -> None:
    """Raise MissingDependency or ShaderError if there is a shader that could not be run.

    Every variant is looked for, 0.1 s where all are shipped or cached: a network is not to fail at
    the one that somebody edited.
    """
    for shader, defines in variants():
        spirv(shader, defines)


def load(graph: Graph, chosen: Mapping[str, Kernel], choice: DeviceChoice = None) -> Engine:
    """Bind a placed graph's kernels and record its commands on a device."""
    return load_on(opened(choice), graph, chosen)


def load_on(on: Device, graph: Graph, chosen: Mapping[str, Kernel]) -> VulkanEngine:
    """The same on a device that is open already."""
    bound: dict[str, Bound] = {}
    for node in graph.nodes:
        if node.name in chosen:
            if node.reps is None:
                raise PlacementError(
                    f"%{node.name} is not placed; compile the graph with backend='vulkan'"
                )
            bound[node.name] = chosen[node.name].bind(Site(node, graph))
    return VulkanEngine(on, graph, bound)
