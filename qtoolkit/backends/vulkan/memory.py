"""Buffers and images, cut out of large allocations, and freed all together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.binding import Handles, Parts
from qtoolkit.backends.vulkan.device import Device
from qtoolkit.errors import VulkanError

BLOCK = 16 << 20  # bytes: an allocation costs 150 us, so there are few


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A range of memory of an arena; `bytes` where the host can reach them."""

    handle: Any
    size: int
    owner: Handles
    bytes: NDArray[np.uint8] | None = None

    @property
    def mapped(self) -> NDArray[np.uint8] | None:
        """The bytes as the host sees them. Raises VulkanError once they are freed."""
        self.owner.check_open()
        return self.bytes


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A 3D image and its view; it stays in layout GENERAL."""

    handle: Any
    view: Any
    extents: tuple[int, int, int]


@dataclass(slots=True)
class _Block:
    memory: Any
    size: int
    used: int
    address: Any = None  # where the host sees it, once it has to


class Arena:
    """Memory of one owner: buffers and images live until `close`, or until it is collected."""

    def __init__(self, device: Device) -> None:
        device.sweep()
        self.device, self.lib, self.ffi = device, device.lib, device.ffi
        self.handles = Handles(device, self)
        self.blocks: dict[int, list[_Block]] = {}
        self.buffers: list[Buffer] = []
        self.images: list[Image] = []
        self.allocated = 0

    def buffer(self, size: int, usage: str, host: bool = False) -> Buffer:
        """A buffer of at least one texel. usage: 'storage', 'uniform' or 'staging'.

        Raises VulkanError where a shader could not see all of it.
        """
        size = max(size, 16)
        if usage != "staging" and size > self.device.limits.buffer_range:
            raise VulkanError(
                f"a buffer of {size} bytes exceeds the {self.device.limits.buffer_range} bytes "
                f"that a shader of {self.device.info.name} can see; use smaller tensors"
            )
        vk, parts = self.device.vk, Parts()
        flags = {
            "storage": vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT,
            "uniform": vk.VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT,
            "staging": 0,
        }[usage]
        moved = vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        info = parts.struct("BufferCreateInfo", size=size, usage=flags | moved)
        handle = parts.made("vkCreateBuffer", self.device.handle, info=info)
        self.handles.keep("vkDestroyBuffer", handle)
        need = parts.new("VkMemoryRequirements*")
        self.lib.vkGetBufferMemoryRequirements(self.device.handle, handle, need)
        block, offset = self._place(need, host)
        parts.check(
            self.lib.vkBindBufferMemory(self.device.handle, handle, block.memory, offset),
            "vkBindBufferMemory",
        )
        mapped = None
        if host:
            if block.address is None:
                block.address = self._mapped(block.memory)
            mapped = np.frombuffer(self.ffi.buffer(block.address + offset, size), np.uint8)
        self.buffers.append(Buffer(handle, size, self.handles, mapped))
        return self.buffers[-1]

    def image(self, extents: tuple[int, int, int], real: bool) -> Image:
        """A 3D storage image of float32 vectors (real) or int32 words."""
        vk, parts = self.device.vk, Parts()
        form = vk.VK_FORMAT_R32G32B32A32_SFLOAT if real else vk.VK_FORMAT_R32_SINT
        limit = self.device.limits.texture_extent
        if max(extents) > limit:
            raise VulkanError(
                f"a texture of {extents} exceeds {limit}, the maxImageDimension3D of "
                f"{self.device.info.name}; compile for this device, or with storage='buffer'"
            )
        info = parts.struct(
            "ImageCreateInfo", imageType=vk.VK_IMAGE_TYPE_3D, format=form, mipLevels=1,
            arrayLayers=1, samples=1, tiling=vk.VK_IMAGE_TILING_OPTIMAL,
            usage=vk.VK_IMAGE_USAGE_STORAGE_BIT | vk.VK_IMAGE_USAGE_TRANSFER_SRC_BIT
            | vk.VK_IMAGE_USAGE_TRANSFER_DST_BIT,
        )  # fmt: skip
        info.extent.width, info.extent.height, info.extent.depth = extents
        handle = parts.made("vkCreateImage", self.device.handle, info=info)
        self.handles.keep("vkDestroyImage", handle)
        need = parts.new("VkMemoryRequirements*")
        self.lib.vkGetImageMemoryRequirements(self.device.handle, handle, need)
        block, offset = self._place(need, host=False)
        parts.check(
            self.lib.vkBindImageMemory(self.device.handle, handle, block.memory, offset),
            "vkBindImageMemory",
        )
        view = parts.struct(
            "ImageViewCreateInfo", image=handle, viewType=vk.VK_IMAGE_VIEW_TYPE_3D, format=form
        )
        view.subresourceRange = whole(parts)[0]
        made = parts.made("vkCreateImageView", self.device.handle, info=view)
        self.handles.keep("vkDestroyImageView", made)
        self.images.append(Image(handle, made, extents))
        return self.images[-1]

    def close(self) -> None:
        """Free all of it; a second call does nothing."""
        self.handles.close()
        self.images, self.buffers, self.blocks = [], [], {}

    def _place(self, need: Any, host: bool) -> tuple[_Block, int]:
        """A block of the right type with room, and the offset in it."""
        kind = self._type(need.memoryTypeBits, host)
        # Buffers and images may share a page only if they keep this distance.
        step = max(int(need.alignment), self.device.limits.granularity)
        for block in self.blocks.get(kind, []):
            offset = -(-block.used // step) * step
            if offset + need.size <= block.size:
                block.used = offset + need.size
                return block, offset
        size = max(BLOCK, int(need.size))
        memory = self._allocate(size, kind)
        self.blocks.setdefault(kind, []).append(_Block(memory, size, int(need.size)))
        self.allocated += size
        return self.blocks[kind][-1], 0

    def _allocate(self, size: int, kind: int) -> Any:
        parts = Parts()
        info = parts.struct("MemoryAllocateInfo", allocationSize=size, memoryTypeIndex=kind)
        try:
            memory = parts.made("vkAllocateMemory", self.device.handle, info=info)
        except VulkanError as failed:
            raise VulkanError(
                f"{failed}: {self.device.info.name} has no {size} bytes more, beside "
                f"{self.allocated} of this graph; close other executables, or use smaller tensors"
            ) from failed
        return self.handles.keep("vkFreeMemory", memory, outlives=True)

    def _type(self, allowed: int, host: bool) -> int:
        """The best memory type: cached for the host to read, else local to the device."""
        vk = self.device.vk
        coherent = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        wishes = (
            (coherent | vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT, coherent)
            if host
            else (vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0)
        )
        for wish in wishes:
            for i, flags in enumerate(self.device.memory_types):
                if allowed >> i & 1 and flags & wish == wish:
                    return i
        raise VulkanError(f"{self.device.info.name} has no memory of a fitting type")

    def _mapped(self, memory: Any) -> Any:
        parts = Parts()
        out = parts.new("void**")
        size = (1 << 64) - 1  # VK_WHOLE_SIZE
        parts.check(
            self.lib.vkMapMemory(self.device.handle, memory, 0, size, 0, out), "vkMapMemory"
        )
        return self.ffi.cast("char*", out[0])


def whole(parts: Parts) -> Any:
    """The only level and layer of an image."""
    return parts.struct(
        "ImageSubresourceRange", aspectMask=parts.vk.VK_IMAGE_ASPECT_COLOR_BIT, levelCount=1,
        layerCount=1,
    )  # fmt: skip
