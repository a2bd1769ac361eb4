"""Vulkan devices: which there are, opening one, what it can do, closing it without a leak."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any
from weakref import WeakSet

from qtoolkit.backends.vulkan.binding import REMEDY, Handles, Parts, package
from qtoolkit.backends.vulkan.dispatch import BYTES, DOT
from qtoolkit.backends.vulkan.pipelines import Pipelines
from qtoolkit.errors import MissingDependency, UnknownName, VulkanError

KINDS = ("other", "integrated GPU", "discrete GPU", "virtual GPU", "CPU")
CPU = 4
PREFERRED = ("discrete GPU", "integrated GPU", "virtual GPU", "other", "CPU")
VALIDATION = "VK_LAYER_KHRONOS_validation"
API = (1, 3)  # of Vulkan: our compiler writes SPIR-V 1.6, which came with it


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One physical device; `cpu` is true of software such as lavapipe."""

    index: int
    name: str
    kind: str
    cpu: bool
    driver: str
    api: tuple[int, int] = API

    def __str__(self) -> str:
        told = "software on the CPU" if self.cpu else self.kind
        return f"{self.name} ({told}), {self.driver}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device can hold. texture_extent: cells along an axis of a 3D texture."""

    texture_extent: int
    buffer_range: int
    groups: int
    uniform_alignment: int
    granularity: int
    timestamp_period: float  # nanoseconds
    timestamp_bits: int  # that a timestamp counts in before it starts from 0 again


def devices() -> tuple[DeviceInfo, ...]:
    """The Vulkan devices of this machine, in the loader's order.

    Raises MissingDependency without a loader, VulkanError without any driver.
    """
    instance = Instance()
    try:
        return tuple(info for info, _ in instance.physical())
    finally:
        instance.close()


class Instance:
    """A connection to the loader; with validation, every message of the layer is kept."""

    def __init__(self, validation: bool = False) -> None:
        vk = package()
        self.messages: list[str] = []
        self.callback: Any = None
        parts = Parts()
        app = parts.struct("ApplicationInfo", apiVersion=API[0] << 22 | API[1] << 12)
        info = parts.struct("InstanceCreateInfo", pApplicationInfo=app)
        if validation:
            self._ask_for_validation(parts, info)
        self.vk = vk
        try:
            self.handle = parts.made("vkCreateInstance", info=info)
        except VulkanError as failed:
            if "LAYER_NOT_PRESENT" in str(failed):
                raise MissingDependency(
                    f"no {VALIDATION}: sudo apt-get install vulkan-validationlayers"
                ) from failed
            if "INCOMPATIBLE_DRIVER" in str(failed):
                raise MissingDependency(f"no Vulkan driver: {REMEDY}") from failed
            raise
        self.messenger = self._listen() if validation else None

    def _ask_for_validation(self, parts: Parts, info: Any) -> None:
        sync = parts.vk.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
        info.pNext = parts.struct(
            "ValidationFeaturesEXT",
            enabledValidationFeatureCount=1,
            pEnabledValidationFeatures=parts.array("VkValidationFeatureEnableEXT", [sync]),
        )
        info.enabledLayerCount, info.ppEnabledLayerNames = 1, parts.texts([VALIDATION])
        extensions = ["VK_EXT_debug_utils", "VK_EXT_validation_features"]
        info.enabledExtensionCount = len(extensions)
        info.ppEnabledExtensionNames = parts.texts(extensions)

    def _listen(self) -> Any:
        """Keep what validation says. The callback lives as long as the instance."""
        parts, ffi = Parts(), self.vk.ffi

        def heard(severity: int, kind: int, data: Any, user: Any) -> int:
            self.messages.append(ffi.string(data.pMessage).decode(errors="replace"))
            return 0

        self.callback = ffi.callback(
            "VkBool32(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,"
            " const VkDebugUtilsMessengerCallbackDataEXT*, void*)",
            heard,
        )
        info = parts.struct(
            "DebugUtilsMessengerCreateInfoEXT",
            messageSeverity=0x1000 | 0x100,  # errors and warnings
            messageType=0x1 | 0x2,  # not advice on performance
            pfnUserCallback=self.callback,
        )
        out = parts.new("VkDebugUtilsMessengerEXT*")
        create = self._extension("vkCreateDebugUtilsMessengerEXT")
        parts.check(create(self.handle, info, ffi.NULL, out), "vkCreateDebugUtilsMessengerEXT")
        return out[0]

    def _extension(self, name: str) -> Any:
        address = self.vk.lib.vkGetInstanceProcAddr(self.handle, name.encode())
        return self.vk.ffi.cast(f"PFN_{name}", address)

    def physical(self) -> list[tuple[DeviceInfo, Any]]:
        """Every physical device with its handle. Raises VulkanError if there is none."""
        parts = Parts()
        handles = parts.listed("VkPhysicalDevice", "vkEnumeratePhysicalDevices", self.handle)
        if not handles:
            raise MissingDependency(f"the Vulkan loader finds no driver: {REMEDY}")
        return [(self._info(i, handle), handle) for i, handle in enumerate(handles)]

    def _info(self, index: int, handle: Any) -> DeviceInfo:
        parts = Parts()
        driver = parts.struct("PhysicalDeviceDriverProperties")
        found = parts.struct("PhysicalDeviceProperties2", pNext=driver)
        self.vk.lib.vkGetPhysicalDeviceProperties2(handle, found)
        text, p = self.vk.ffi.string, found.properties
        told = f"{text(driver.driverName).decode()} {text(driver.driverInfo).decode()}".strip()
        kind = KINDS[p.deviceType] if p.deviceType < len(KINDS) else KINDS[0]
        api = p.apiVersion >> 22 & 0x7F, p.apiVersion >> 12 & 0x3FF
        return DeviceInfo(index, text(p.deviceName).decode(), kind, p.deviceType == CPU, told, api)

    def close(self) -> None:
        """Free everything; a second call does nothing."""
        if self.handle is None:
            return
        if self.messenger is not None:
            destroy = self._extension("vkDestroyDebugUtilsMessengerEXT")
            destroy(self.handle, self.messenger, self.vk.ffi.NULL)
        self.vk.lib.vkDestroyInstance(self.handle, self.vk.ffi.NULL)
        self.handle = None


def chosen(found: Sequence[tuple[DeviceInfo, Any]], choice: int | str | None) -> int:
    """The position of the device asked for: by index, by part of its name, or the best.

    Digits that are no index are looked for in names. Without a choice a GPU comes before software.
    Raises UnknownName, listing what there is.
    """
    listed = "; ".join(f"{info.index} = {info.name}" for info, _ in found)
    if choice is None:
        return min(range(len(found)), key=lambda i: PREFERRED.index(found[i][0].kind))
    if (isinstance(choice, int) or choice.isdecimal()) and 0 <= int(choice) < len(found):
        return int(choice)
    part = str(choice).strip().lower()
    named = [i for i, (info, _) in enumerate(found) if part in info.name.lower()]
    if isinstance(choice, int) or not part or not named:
        raise UnknownName(f"Vulkan device {choice!r}; the devices are {listed}")
    return named[0]


class Device:
    """An open device with one compute queue. Use it from one thread at a time: hold `lock`.

    choice: an index, a part of the name, or None for the best. validation: keep the messages of
    the validation layer, synchronization checks included, in `messages`. plain: use no optional
    feature, only what every driver runs. What is made from it, engines among them, is freed
    before it, and it is itself if it is left to the garbage collector.
    """

    def __init__(
        self, choice: int | str | None = None, validation: bool = False, plain: bool = False
    ) -> None:
        self.lock = RLock()
        self.open = False
        self.children: WeakSet[Any] = WeakSet()
        self.holders: set[Handles] = set()
        self.abandoned: list[Handles] = []
        self.instance = Instance(validation)
        try:
            found = self.instance.physical()
            self.info, self.physical = found[chosen(found, choice)]
            if self.info.api < API:
                offered, needed = (".".join(map(str, api)) for api in (self.info.api, API))
                raise VulkanError(
                    f"{self.info.name} offers Vulkan {offered}, the shaders need {needed}: install "
                    "a newer driver, or choose another device"
                )
            self.vk, self.ffi, self.lib = (
                self.instance.vk, self.instance.vk.ffi, self.instance.vk.lib,
            )  # fmt: skip
            self.features = frozenset[str]() if plain else self._features()
            self.family, timestamp_bits = self._compute_family()
            self.limits, self.memory_types = self._limits(timestamp_bits)
            self.handle = self._create()
        except BaseException:
            self.instance.close()
            raise
        self.open = True
        parts = Parts()
        queue = parts.new("VkQueue*")
        self.lib.vkGetDeviceQueue(self.handle, self.family, 0, queue)
        self.queue = queue[0]
        self.pipelines = Pipelines(self)

    @property
    def messages(self) -> list[str]:
        """What the validation layer has said so far."""
        return self.instance.messages

    def __str__(self) -> str:
        return str(self.info)

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the device and all that was made from it. May be called twice."""
        with self.lock:
            if self.open:
                self.lib.vkDeviceWaitIdle(self.handle)
                self.open = False
                for child in tuple(self.children):
                    child.close()
                for handles in tuple(self.holders):
                    handles.close()
                self.lib.vkDestroyDevice(self.handle, self.ffi.NULL)
                self.instance.close()

    def __del__(self) -> None:
        if getattr(self, "open", False):
            self.close()

    def sweep(self) -> None:
        """Free what was left to the garbage collector while the device was busy.

        Raises VulkanError if the device is closed: nothing can be made from it any more.
        """
        with self.lock:
            if not self.open:
                raise VulkanError(f"{self.info.name} is closed; open a Device again")
            while self.abandoned:
                self.abandoned.pop().close()

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""
        Parts().check(self.lib.vkDeviceWaitIdle(self.handle), "vkDeviceWaitIdle")

    def _limits(self, timestamp_bits: int) -> tuple[Limits, tuple[int, ...]]:
        parts = Parts()
        found = parts.struct("PhysicalDeviceProperties2")
        self.lib.vkGetPhysicalDeviceProperties2(self.physical, found)
        limit = found.properties.limits
        memory = parts.new("VkPhysicalDeviceMemoryProperties*")
        self.lib.vkGetPhysicalDeviceMemoryProperties(self.physical, memory)
        flags = tuple(memory.memoryTypes[i].propertyFlags for i in range(memory.memoryTypeCount))
        return Limits(
            limit.maxImageDimension3D,
            limit.maxStorageBufferRange,
            limit.maxComputeWorkGroupCount[0],
            limit.minUniformBufferOffsetAlignment,
            limit.bufferImageGranularity,
            limit.timestampPeriod,
            timestamp_bits,
        ), flags

    def _features(self) -> frozenset[str]:
        """Those of FEATURES that the device has; the dot product may be emulated."""
        parts = Parts()
        dot, stored = _feature_structs(parts)
        self.lib.vkGetPhysicalDeviceFeatures2(
            self.physical, parts.struct("PhysicalDeviceFeatures2", pNext=dot)
        )
        there = {DOT: dot.shaderIntegerDotProduct, BYTES: stored.storageBuffer8BitAccess}
        return frozenset(name for name, has in there.items() if has)

    def _compute_family(self) -> tuple[int, int]:
        """A queue family that computes, and how many bits its timestamps have."""
        parts = Parts()
        found = parts.listed(
            "VkQueueFamilyProperties", "vkGetPhysicalDeviceQueueFamilyProperties", self.physical
        )
        for i, family in enumerate(found):
            if family.queueFlags & self.vk.VK_QUEUE_COMPUTE_BIT and family.timestampValidBits:
                return i, family.timestampValidBits
        raise VulkanError(f"{self.info.name} has no queue that computes and keeps time")

    def _create(self) -> Any:
        parts = Parts()
        queue = parts.struct(
            "DeviceQueueCreateInfo",
            queueFamilyIndex=self.family,
            queueCount=1,
            pQueuePriorities=parts.array("float", [1.0]),
        )
        info = parts.struct("DeviceCreateInfo", queueCreateInfoCount=1, pQueueCreateInfos=queue)
        dot, stored = _feature_structs(parts)
        dot.shaderIntegerDotProduct = DOT in self.features
        stored.storageBuffer8BitAccess = BYTES in self.features
        info.pNext = dot
        return parts.made("vkCreateDevice", self.physical, info=info)


def _feature_structs(parts: Parts) -> tuple[Any, Any]:
    """The structs that ask for, and tell of, FEATURES; the second hangs on the first."""
    stored = parts.struct("PhysicalDevice8BitStorageFeatures")
    return parts.struct("PhysicalDeviceShaderIntegerDotProductFeatures", pNext=stored), stored
