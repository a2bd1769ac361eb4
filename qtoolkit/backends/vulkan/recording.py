"""A command buffer: uploads, dispatches between barriers and timestamps, downloads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qtoolkit.backends.vulkan.binding import Handles, Parts
from qtoolkit.backends.vulkan.descriptors import Launch, Resource, bind
from qtoolkit.backends.vulkan.device import Device
from qtoolkit.backends.vulkan.memory import Arena, Buffer, Image, whole

LOCAL_SIZE = 64  # as in shaders/include/invocation.glsl


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Bytes between a resource and a place in the staging buffer."""

    resource: Resource
    offset: int
    size: int


class Recording:
    """Commands recorded once. `barrier` may be replaced to see what a missing one does."""

    def __init__(self, device: Device, arena: Arena) -> None:
        self.device, self.arena, self.lib = device, arena, device.lib
        self.handles = Handles(device, self)
        parts = Parts()
        info = parts.struct(
            "CommandPoolCreateInfo",
            queueFamilyIndex=device.family,
            flags=device.vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        )
        pool = parts.made("vkCreateCommandPool", device.handle, info=info)
        self.handles.keep("vkDestroyCommandPool", pool)
        info = parts.struct("CommandBufferAllocateInfo", commandPool=pool, commandBufferCount=1)
        self.commands = parts.made("vkAllocateCommandBuffers", device.handle, info=info)
        self.fence = parts.made(
            "vkCreateFence", device.handle, info=parts.struct("FenceCreateInfo")
        )
        self.handles.keep("vkDestroyFence", self.fence)
        self.queries: Any = None
        self.timed: list[str] = []

    def record(self, write: Callable[[], None]) -> None:
        """Record what `write` writes."""
        parts = Parts()
        begun = parts.struct("CommandBufferBeginInfo")
        parts.check(self.lib.vkBeginCommandBuffer(self.commands, begun), "vkBeginCommandBuffer")
        write()
        parts.check(self.lib.vkEndCommandBuffer(self.commands), "vkEndCommandBuffer")

    def submit(self) -> None:
        """Run the commands and wait until they are done. Raises VulkanError once closed."""
        self.handles.check_open()
        parts, device = Parts(), self.device
        info = parts.struct(
            "SubmitInfo",
            commandBufferCount=1,
            pCommandBuffers=parts.array("VkCommandBuffer", [self.commands]),
        )
        fence = parts.array("VkFence", [self.fence])
        parts.check(self.lib.vkQueueSubmit(device.queue, 1, info, self.fence), "vkQueueSubmit")
        forever = (1 << 64) - 1
        parts.check(
            self.lib.vkWaitForFences(device.handle, 1, fence, 1, forever), "vkWaitForFences"
        )
        parts.check(self.lib.vkResetFences(device.handle, 1, fence), "vkResetFences")

    def ready_images(self, images: Sequence[Image]) -> None:
        """Bring new images into the layout they stay in."""
        vk, parts = self.device.vk, Parts()
        listed = []
        for image in images:
            barrier = parts.struct(
                "ImageMemoryBarrier", image=image.handle,
                oldLayout=vk.VK_IMAGE_LAYOUT_UNDEFINED, newLayout=vk.VK_IMAGE_LAYOUT_GENERAL,
                dstAccessMask=vk.VK_ACCESS_TRANSFER_WRITE_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT,
                srcQueueFamilyIndex=vk.VK_QUEUE_FAMILY_IGNORED,
                dstQueueFamilyIndex=vk.VK_QUEUE_FAMILY_IGNORED,
            )  # fmt: skip
            barrier.subresourceRange = whole(parts)[0]
            listed.append(barrier)
        self.lib.vkCmdPipelineBarrier(
            self.commands, vk.VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT,
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT | vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            0, 0, parts.ffi.NULL, 0, parts.ffi.NULL,
            len(listed), parts.array("VkImageMemoryBarrier", listed),
        )  # fmt: skip

    def uploads(self, staging: Buffer, copies: Sequence[Copy]) -> None:
        """Copy from the staging buffer."""
        for copy in copies:
            self._copy(staging, copy, up=True)

    def downloads(self, staging: Buffer, copies: Sequence[Copy]) -> None:
        """Copy to the staging buffer, and let the host see it."""
        for copy in copies:
            self._copy(staging, copy, up=False)
        vk = self.device.vk
        self.barrier(
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT, vk.VK_ACCESS_TRANSFER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_HOST_BIT, vk.VK_ACCESS_HOST_READ_BIT,
        )  # fmt: skip

    def after_uploads(self) -> None:
        """Shaders may read what was copied."""
        vk = self.device.vk
        self.barrier(
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT, vk.VK_ACCESS_TRANSFER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT,
        )  # fmt: skip

    def between_dispatches(self) -> None:
        """Shaders may read and write what shaders wrote."""
        vk = self.device.vk
        self.barrier(
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, vk.VK_ACCESS_SHADER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT,
        )  # fmt: skip

    def before_downloads(self) -> None:
        """Copies may read what shaders wrote."""
        vk = self.device.vk
        self.barrier(
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, vk.VK_ACCESS_SHADER_WRITE_BIT,
            vk.VK_PIPELINE_STAGE_TRANSFER_BIT, vk.VK_ACCESS_TRANSFER_READ_BIT,
        )  # fmt: skip

    def barrier(self, from_stage: int, written: int, to_stage: int, used: int) -> None:
        """A global memory barrier."""
        parts = Parts()
        memory = parts.struct("MemoryBarrier", srcAccessMask=written, dstAccessMask=used)
        null = parts.ffi.NULL
        self.lib.vkCmdPipelineBarrier(
            self.commands, from_stage, to_stage, 0, 1, memory, 0, null, 0, null
        )

    def launches(self, launches: Mapping[str, Sequence[Launch]]) -> None:
        """All dispatches, those of a node between two timestamps; barriers where one is due."""
        every = [launch for each in launches.values() for launch in each]
        bound = bind(every, self.device, self.arena, self.handles)
        self._make_queries(2 * len(launches))
        written: set[int] = set()
        vk, at = self.device.vk, iter(bound)
        stage = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        for i, (name, each) in enumerate(launches.items()):
            self.timed.append(name)
            for j, launch in enumerate(each):
                if any(id(r) in written for r in launch.resources):
                    self.between_dispatches()
                    written.clear()
                if j == 0:
                    self.lib.vkCmdWriteTimestamp(self.commands, stage, self.queries, 2 * i)
                self._dispatch(launch, next(at))
                written.add(id(launch.resources[-1]))
            self.lib.vkCmdWriteTimestamp(self.commands, stage, self.queries, 2 * i + 1)

    def _dispatch(self, launch: Launch, descriptor: Any) -> None:
        parts, vk = Parts(), self.device.vk
        point = vk.VK_PIPELINE_BIND_POINT_COMPUTE
        self.lib.vkCmdBindPipeline(self.commands, point, launch.pipeline.handle)
        self.lib.vkCmdBindDescriptorSets(
            self.commands, point, launch.pipeline.layout, 0, 1,
            parts.array("VkDescriptorSet", [descriptor]), 0, parts.ffi.NULL,
        )  # fmt: skip
        groups = -(-launch.texels // LOCAL_SIZE)
        rows = -(-groups // self.device.limits.groups)
        self.lib.vkCmdDispatch(self.commands, -(-groups // rows), rows, 1)

    def seconds(self) -> dict[str, float]:
        """How long each node's dispatches took in the last run, by the device's clock."""
        if not self.timed:
            return {}
        parts, count = Parts(), 2 * len(self.timed)
        ticks = parts.new(f"uint64_t[{count}]")
        vk = self.device.vk
        parts.check(
            self.lib.vkGetQueryPoolResults(
                self.device.handle, self.queries, 0, count, 8 * count, ticks, 8,
                vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT,
            ),
            "vkGetQueryPoolResults",
        )  # fmt: skip
        period = self.device.limits.timestamp_period * 1e-9
        counted = (1 << self.device.limits.timestamp_bits) - 1
        return {
            name: (ticks[2 * i + 1] - ticks[2 * i] & counted) * period
            for i, name in enumerate(self.timed)
        }

    def close(self) -> None:
        """Free what recording took; a second call does nothing."""
        self.handles.close()

    def _copy(self, staging: Buffer, copy: Copy, up: bool) -> None:
        parts, resource = Parts(), copy.resource
        general = self.device.vk.VK_IMAGE_LAYOUT_GENERAL
        if isinstance(resource, Buffer):
            ends = (copy.offset, 0) if up else (0, copy.offset)
            region = parts.struct(
                "BufferCopy", srcOffset=ends[0], dstOffset=ends[1], size=copy.size
            )
            pair = (staging, resource) if up else (resource, staging)
            self.lib.vkCmdCopyBuffer(self.commands, pair[0].handle, pair[1].handle, 1, region)
            return
        region = parts.struct("BufferImageCopy", bufferOffset=copy.offset)
        region.imageSubresource.aspectMask = self.device.vk.VK_IMAGE_ASPECT_COLOR_BIT
        region.imageSubresource.layerCount = 1
        extent = region.imageExtent
        extent.width, extent.height, extent.depth = resource.extents
        if up:
            self.lib.vkCmdCopyBufferToImage(
                self.commands, staging.handle, resource.handle, general, 1, region
            )
        else:
            self.lib.vkCmdCopyImageToBuffer(
                self.commands, resource.handle, general, staging.handle, 1, region
            )

    def _make_queries(self, count: int) -> None:
        if not count:
            return
        parts = Parts()
        info = parts.struct(
            "QueryPoolCreateInfo",
            queryType=self.device.vk.VK_QUERY_TYPE_TIMESTAMP,
            queryCount=count,
        )
        self.queries = parts.made("vkCreateQueryPool", self.device.handle, info=info)
        self.handles.keep("vkDestroyQueryPool", self.queries)
        self.lib.vkCmdResetQueryPool(self.commands, self.queries, 0, count)
