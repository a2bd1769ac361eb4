"""A thin layer over the vulkan package: structs that stay alive, results that are checked.

A struct handed over by value or inside a list does not keep what it points to alive. So every piece
is made by a Parts, which holds all of them until the calls that read them have returned.
"""

import re
from typing import Any

from qtoolkit.errors import MissingDependency, VulkanError

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
        kind = "VK_STRUCTURE_TYPE_" + re.sub(r"(?<=[a-z])(?=[A-Z0-9])", "_", name).upper()
        if getattr(self.vk, kind, None) is not None:
            made.sType = getattr(self.vk, kind)
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
        for values in (self.ffi.NULL, None):
            if values is None:
                values = self.new(f"{kind}[]", max(count[0], 1))
            result = call(*before, count, values)
            if result is not None:
                self.check(result, function)
        return [values[i] for i in range(count[0])]
