"""Compute pipelines of a device, made once for each variant and set of constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qtoolkit.backends.vulkan.binding import Handles, Parts
from qtoolkit.backends.vulkan.shaders import spirv

if TYPE_CHECKING:
    from qtoolkit.backends.vulkan.device import Device

UNIFORM, STORAGE, TEXTURE = "uniform", "storage", "texture"
Bindings = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A compiled shader and the layout of what it binds."""

    handle: Any
    layout: Any
    set_layout: Any


class Pipelines:
    """All pipelines of a device, by shader, defines and specialization constants."""

    def __init__(self, device: "Device") -> None:
        self.device = device
        self.handles = Handles(device)
        self.made: dict[tuple[Any, ...], Pipeline] = {}
        self.modules: dict[tuple[Any, ...], tuple[bytes, Any]] = {}
        self.layouts: dict[Bindings, tuple[Any, Any]] = {}
        self.current: set[tuple[Any, ...]] = set()

    def look_again(self) -> None:
        """Shaders may have been edited: each is read anew when it is next asked for."""
        self.current.clear()

    def pipeline(
        self,
        shader: str,
        defines: Mapping[str, int],
        bindings: Bindings,
        constants: tuple[int, ...],
    ) -> Pipeline:
        """The pipeline of a variant; bindings are the kinds of what it binds, from 0 on."""
        variant = (shader, *sorted(defines.items()))
        words, module = self.modules.get(variant, (b"", None))
        if variant not in self.current:
            found = spirv(shader, defines)
            if found != words:
                # Pipelines of the old text may be in use: they stay, under a key nobody asks for.
                words, module = self.modules[variant] = found, self._module(found)
            self.current.add(variant)
        key = (variant, words, constants)
        if key not in self.made:
            set_layout, layout = self._layout(bindings)
            handle = self._create(module, layout, constants)
            self.made[key] = Pipeline(handle, layout, set_layout)
        return self.made[key]

    def close(self) -> None:
        """Destroy all of them; a second call does nothing."""
        self.handles.close()
        self.made, self.modules, self.layouts = {}, {}, {}
        self.current.clear()

    def _module(self, words: bytes) -> Any:
        parts = Parts()
        code = parts.new("char[]", words)
        info = parts.struct(
            "ShaderModuleCreateInfo", codeSize=len(words), pCode=parts.ffi.cast("uint32_t*", code)
        )
        module = parts.made("vkCreateShaderModule", self.device.handle, info=info)
        return self.handles.keep("vkDestroyShaderModule", module)

    def _layout(self, bindings: Bindings) -> tuple[Any, Any]:
        if bindings in self.layouts:
            return self.layouts[bindings]
        parts = Parts()
        listed = [
            parts.struct(
                "DescriptorSetLayoutBinding",
                binding=i,
                descriptorType=descriptor_type(parts, kind),
                descriptorCount=1,
                stageFlags=parts.vk.VK_SHADER_STAGE_COMPUTE_BIT,
            )
            for i, kind in enumerate(bindings)
        ]
        info = parts.struct(
            "DescriptorSetLayoutCreateInfo",
            bindingCount=len(listed),
            pBindings=parts.array("VkDescriptorSetLayoutBinding", listed),
        )
        device = self.device.handle
        set_layout = parts.made("vkCreateDescriptorSetLayout", device, info=info)
        self.handles.keep("vkDestroyDescriptorSetLayout", set_layout)
        info = parts.struct(
            "PipelineLayoutCreateInfo",
            setLayoutCount=1,
            pSetLayouts=parts.array("VkDescriptorSetLayout", [set_layout]),
        )
        layout = parts.made("vkCreatePipelineLayout", device, info=info)
        self.handles.keep("vkDestroyPipelineLayout", layout)
        self.layouts[bindings] = set_layout, layout
        return set_layout, layout

    def _create(self, module: Any, layout: Any, constants: tuple[int, ...]) -> Any:
        parts = Parts()
        entries = [
            parts.struct("SpecializationMapEntry", constantID=i, offset=4 * i, size=4)
            for i in range(len(constants))
        ]
        special = parts.struct(
            "SpecializationInfo",
            mapEntryCount=len(entries),
            pMapEntries=parts.array("VkSpecializationMapEntry", entries),
            dataSize=4 * len(constants),
            pData=parts.array("int32_t", constants),
        )
        info = parts.struct("ComputePipelineCreateInfo", layout=layout)
        # The stage is copied by value: `special`, `entry` and the module live in parts meanwhile.
        info.stage.sType = parts.vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
        info.stage.stage = parts.vk.VK_SHADER_STAGE_COMPUTE_BIT
        info.stage.module = module
        info.stage.pName = parts.new("char[]", b"main")
        info.stage.pSpecializationInfo = special
        out = parts.new("VkPipeline*")
        made = parts.lib.vkCreateComputePipelines(
            self.device.handle, parts.ffi.NULL, 1, info, parts.ffi.NULL, out
        )
        parts.check(made, "vkCreateComputePipelines")
        return self.handles.keep("vkDestroyPipeline", out[0])


def descriptor_type(parts: Parts, kind: str) -> int:
    """The VkDescriptorType of a kind of binding."""
    vk = parts.vk
    types = {
        UNIFORM: vk.VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER,
        STORAGE: vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
        TEXTURE: vk.VK_DESCRIPTOR_TYPE_STORAGE_IMAGE,
    }
    return int(types[kind])
