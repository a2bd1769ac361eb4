"""Descriptor sets: which memory each dispatch binds, and its parameters in a uniform buffer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.backends.vulkan.binding import Handles, Parts
from qtoolkit.backends.vulkan.device import Device
from qtoolkit.backends.vulkan.memory import Arena, Buffer, Image
from qtoolkit.backends.vulkan.pipelines import (
    STORAGE,
    TEXTURE,
    UNIFORM,
    Pipeline,
    descriptor_type,
)

Resource = Buffer | Image


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A dispatch with everything it binds, the last resource being written."""

    pipeline: Pipeline
    resources: tuple[Resource, ...]
    params: NDArray[np.int32]
    texels: int


def bind(launches: Sequence[Launch], device: Device, arena: Arena, handles: Handles) -> list[Any]:
    """A descriptor set for each launch, its parameters in one uniform buffer of the arena."""
    if not launches:
        return []
    step = max(device.limits.uniform_alignment, 16)
    starts, end = [], 0
    for launch in launches:
        starts.append(end)
        end += -(-launch.params.nbytes // step) * step
    uniform = arena.buffer(end, "uniform", host=True)
    assert uniform.mapped is not None
    for launch, start in zip(launches, starts, strict=True):
        raw = np.ascontiguousarray(launch.params).view(np.uint8)
        uniform.mapped[start : start + raw.size] = raw
    sets = _sets(launches, device, handles)
    for launch, start, made in zip(launches, starts, sets, strict=True):
        _write(made, launch, uniform, start, device)
    return sets


def _sets(launches: Sequence[Launch], device: Device, handles: Handles) -> list[Any]:
    parts = Parts()
    kinds = [kind for launch in launches for kind in bindings(launch.resources)]
    sizes = [
        parts.struct(
            "DescriptorPoolSize",
            type=descriptor_type(parts, kind),
            descriptorCount=kinds.count(kind),
        )
        for kind in sorted(set(kinds))
    ]
    info = parts.struct(
        "DescriptorPoolCreateInfo", maxSets=len(launches), poolSizeCount=len(sizes),
        pPoolSizes=parts.array("VkDescriptorPoolSize", sizes),
    )  # fmt: skip
    pool = parts.made("vkCreateDescriptorPool", device.handle, info=info)
    handles.keep("vkDestroyDescriptorPool", pool)
    layouts = parts.array(
        "VkDescriptorSetLayout", [launch.pipeline.set_layout for launch in launches]
    )
    info = parts.struct(
        "DescriptorSetAllocateInfo", descriptorPool=pool,
        descriptorSetCount=len(launches), pSetLayouts=layouts,
    )  # fmt: skip
    out = parts.new("VkDescriptorSet[]", len(launches))
    made = device.lib.vkAllocateDescriptorSets(device.handle, info, out)
    parts.check(made, "vkAllocateDescriptorSets")
    return list(out)


def _write(made: Any, launch: Launch, uniform: Buffer, start: int, device: Device) -> None:
    parts, vk = Parts(), device.vk
    writes = []
    for i, (kind, resource) in enumerate(
        zip(bindings(launch.resources), (uniform, *launch.resources), strict=True)
    ):
        write = parts.struct(
            "WriteDescriptorSet", dstSet=made, dstBinding=i, descriptorCount=1,
            descriptorType=descriptor_type(parts, kind),
        )  # fmt: skip
        if isinstance(resource, Image):
            write.pImageInfo = parts.struct(
                "DescriptorImageInfo", imageView=resource.view,
                imageLayout=vk.VK_IMAGE_LAYOUT_GENERAL,
            )  # fmt: skip
        else:
            write.pBufferInfo = parts.struct(
                "DescriptorBufferInfo", buffer=resource.handle,
                offset=start if i == 0 else 0,
                range=launch.params.nbytes if i == 0 else resource.size,
            )  # fmt: skip
        writes.append(write)
    array = parts.array("VkWriteDescriptorSet", writes)
    device.lib.vkUpdateDescriptorSets(device.handle, len(writes), array, 0, parts.ffi.NULL)


def bindings(resources: Sequence[Resource]) -> tuple[str, ...]:
    """The kinds of binding of a launch: the uniform block, then its resources."""
    return (UNIFORM, *(TEXTURE if isinstance(r, Image) else STORAGE for r in resources))
