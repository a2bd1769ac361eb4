"""Every variant of every shader that kernels may ask for: what a wheel ships compiled."""

from collections.abc import Iterator, Sequence
from itertools import product

from qtoolkit.backends.vulkan.tensors import Kind

Defines = dict[str, int]
STORAGES = (0, 1)  # buffer, texture
BOTH = (0, 1)
# (X_KIND, X_TEXTURE): int32 lies in buffers only.
CODES = tuple((Kind.CODES, s) for s in STORAGES)
REALS = tuple((Kind.REALS, s) for s in STORAGES)
INTS = ((Kind.INTS, 0),)

# Which operands may be textures, apart from x where X_KINDS tells of it.
TEXTURES: dict[str, tuple[str, ...]] = {
    "quantize": ("X", "INVERSE", "Y"),
    "dequantize": ("SCALE", "Y"),
    "requantize": ("Y",),
    "q8_add": ("A", "B", "Y"),
    "q8_clamp": ("X", "Y"),
    "q8_conv2d": ("X", "Y"),
    "q8_conv2d_pointwise": ("X", "Y"),
    "q8_conv2d_depthwise": ("X", "Y"),
    "q8_conv2d_grouped": ("X", "Y"),
    "q8_linear": ("X", "Y"),
    "q8_matmul": ("A", "B", "Y"),
    "q8_avg_pool2d": ("X", "Y"),
    "max_pool2d": ("Y",),
    "gather": ("Y",),
    "embedding": ("TABLE", "Y"),
}
X_KINDS: dict[str, Sequence[tuple[Kind, int]]] = {
    "dequantize": (*CODES, *INTS),
    "requantize": (*CODES, *INTS),
    "max_pool2d": (*CODES, *REALS),
    "gather": (*CODES, *REALS, *INTS),
}
SWITCHES: dict[str, tuple[str, ...]] = {
    "q8_conv2d": ("DOT",),
    "q8_conv2d_pointwise": ("DOT",),
    "q8_conv2d_grouped": ("BYTES",),
    "q8_linear": ("DOT",),
    "q8_matmul": ("DOT",),
    "gather": ("KEEP",),
}


def variants() -> Iterator[tuple[str, Defines]]:
    """(shader, its #defines) of all variants."""
    for shader, operands in TEXTURES.items():
        switches = SWITCHES.get(shader, ())
        for storages in product(STORAGES, repeat=len(operands)):
            for values in product(BOTH, repeat=len(switches)):
                for kind, texture in X_KINDS.get(shader, [(None, None)]):
                    found = {
                        f"{name}_TEXTURE": s for name, s in zip(operands, storages, strict=True)
                    }
                    found |= dict(zip(switches, values, strict=True))
                    if kind is Kind.INTS and shader == "gather" and found["Y_TEXTURE"]:
                        continue
                    if kind is not None and texture is not None:
                        found |= {"X_KIND": int(kind), "X_TEXTURE": texture}
                    yield shader, found
