"""A thin layer over the vulkan package: structs that stay alive, results that are checked.

A struct handed over by value or inside a list does not keep what it points to alive. So every piece
is made by a Parts, which holds all of them until the calls that read them have returned.
"""

import re
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any

from qtoolkit.errors import MissingDependency, VulkanError

if TYPE_CHECKING:
    from qtoolkit.backends.vulkan.device import Device

REMEDY = "sudo apt-get install libvulkan1 mesa-vulkan-drivers"


def package() -> Any:
    """The vulkan package, imported when first asked for.

    Raises MissingDependency where the package or the Vulkan loader is not installed.
    """
    try:
        import vulkan
    except ModuleNotFoundError as missing:
        raise MissingDependency(
            "the Vulkan backend needs the package vulkan: python -m pip install 'qtoolkit[vulkan]'"
        ) from missing
    except OSError as missing:
        raise MissingDependency(f"no Vulkan loader (libvulkan.so.1): {REMEDY}") from missing
    return vulkan


@cache
def structure_type(name: str) -> int | None:
    """The VkStructureType of a struct by its name without 'Vk'; None for one that has no sType."""
    vk = package()
    if "sType" not in dict(vk.ffi.typeof(f"Vk{name}").fields):
        return None
    words = re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", name).upper()
    return int(getattr(vk, f"VK_STRUCTURE_TYPE_{words}"))


class Parts:
    """The structs of one call or of several; each lives as long as this object."""

    def __init__(self) -> None:
        vk = package()
        self.vk, self.ffi, self.lib = vk, vk.ffi, vk.lib
        self.kept: list[Any] = []

    def new(self, kind: str, value: Any = None) -> Any:
        """ffi.new, kept."""
        made = self.ffi.new(kind, value) if value is not None else self.ffi.new(kind)
        self.kept.append(made)
        return made

    def struct(self, name: str, **fields: Any) -> Any:
        """A struct by its name without 'Vk', its sType set; fields are as C has them."""
        made = self.new(f"Vk{name}*")
        kind = structure_type(name)
        if kind is not None:
            made.sType = kind
        for field, value in fields.items():
            setattr(made, field, value)
        return made

    def array(self, kind: str, values: Any) -> Any:
        """A C array of structs or handles; struct pointers are copied in, and kept themselves."""
        values = list(values)
        made = self.new(f"{kind}[]", len(values) or 1)
        for i, value in enumerate(values):
            made[i] = value[0] if self._points_to(value, kind) else value
        return made

    def _points_to(self, value: Any, kind: str) -> bool:
        if not isinstance(value, self.ffi.CData):
            return False
        return self.ffi.typeof(value) is self.ffi.typeof(f"{kind}*")

    def texts(self, values: Any) -> Any:
        """A C array of strings."""
        return self.array("char*", [self.new("char[]", v.encode()) for v in values])

    def made(self, create: str, *before: Any, info: Any = None) -> Any:
        """The handle a vkCreate or vkAllocate function makes. Raises VulkanError."""
        function = getattr(self.lib, create)
        kind = self.ffi.typeof(function).args[-1].item.cname
        out = self.new(f"{kind}*")
        rest = (info,) if create.startswith("vkAllocate") and create != "vkAllocateMemory" else (
            info, self.ffi.NULL,
        )  # fmt: skip
        self.check(function(*before, *rest, out), create)
        return out[0]

    def check(self, result: int, what: str) -> None:
        """Raise VulkanError unless a call succeeded."""
        if result < 0:
            raise VulkanError(f"{what} failed with {self._result_name(result)}")

    def _result_name(self, result: int) -> str:
        names = (n for n in dir(self.vk) if n.startswith("VK_ERROR_"))
        return next((n for n in names if getattr(self.vk, n) == result), str(result))

    def listed(self, kind: str, function: str, *before: Any) -> list[Any]:
        """All that a vkEnumerate or vkGet function with a count lists."""
        count = self.new("uint32_t*", 0)
        call = getattr(self.lib, function)
        self.check(call(*before, count, self.ffi.NULL) or 0, function)
        values = self.new(f"{kind}[]", max(count[0], 1))
        self.check(call(*before, count, values) or 0, function)
        return [values[i] for i in range(count[0])]


class Handles:
    """What one owner made from a device: freed once, newest first, by whoever comes first.

    That is `close`, the device as it closes, or the garbage collector once `owner` is gone. What
    was made before a failure is freed too.
    """

    def __init__(self, device: "Device", owner: object = None) -> None:
        self.device = device
        self.made: list[tuple[str, Any]] = []
        device.holders.add(self)
        if owner is not None:
            weakref.finalize(owner, self._abandon).atexit = False

    def keep(self, destroy: str, handle: Any, outlives: bool = False) -> Any:
        """The handle, to be freed by vkDestroy... or vkFree...; outlives: after all there is."""
        self.made.insert(0 if outlives else len(self.made), (destroy, handle))
        return handle

    def check_open(self) -> None:
        """Raise VulkanError if this is closed: what it held may not be touched any more."""
        if self not in self.device.holders:
            raise VulkanError("this executable or its device is closed; load the graph again")

    def close(self) -> None:
        """Free all of it; a second call does nothing."""
        device = self.device
        with device.lock:
            while self.made:
                destroy, handle = self.made.pop()
                getattr(device.lib, destroy)(device.handle, handle, device.ffi.NULL)
            device.holders.discard(self)

    def _abandon(self) -> None:
        """Close without waiting: the collector may run in any thread, amid anything."""
        if not self.device.lock.acquire(blocking=False):
            self.device.abandoned.append(self)
            return
        try:
            self.close()
        finally:
            self.device.lock.release()
