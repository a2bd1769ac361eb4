"""Colours by role, one meaning each: the Okabe-Ito set, safe for colour-blind readers, and greys.

Source: Okabe and Ito 2008, Color Universal Design; the dark blue of 'vulkan' is Paul Tol's indigo.
"""

from collections.abc import Mapping
from types import MappingProxyType

INK = "#1F2328"
MUTED = "#59636E"
WIRE = "#7D8590"
GRID = "#E4E7EB"
BAND = "#F3F5F7"
PAPER = "#FFFFFF"

PER_CHANNEL = "#0072B2"
PER_TENSOR = "#E69F00"
INT8 = "#009E73"
FLOAT = "#D55E00"
COPY = "#CC79A7"
BORDER = "#F0E442"
ERROR = "#6A7885"
ROUNDING = "#E9ECEF"
UNDERFLOW = "#882255"  # Paul Tol's wine

GRANULARITY: Mapping[str, str] = MappingProxyType(
    {"per-channel": PER_CHANNEL, "per-tensor": PER_TENSOR}
)
BACKEND: Mapping[str, str] = MappingProxyType(
    {
        "float": FLOAT,
        "torch": FLOAT,
        "reference": "#8C959F",
        "numba": "#56B4E9",
        "vulkan": "#332288",
    }
)
# What a node of a graph computes on.
ROLE: Mapping[str, str] = MappingProxyType(
    {"int8": INT8, "float": FLOAT, "border": BORDER, "copy": COPY, "input": WIRE}
)
ROLE_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "int8": "int8",
        "float": "float",
        "border": "quantize, dequantize",
        "copy": "copy to another memory layout",
        "input": "input",
        "unsupported": "unsupported",
    }
)
# Where a value lies: a hue for the storage, the deeper the further in its packed axis.
STORAGE: Mapping[str, str] = MappingProxyType({"buffer": "#44AA99", "texture_3d": "#DDAA33"})
LAYOUT_TINT: Mapping[str, float] = MappingProxyType(
    {"width": 0.78, "height": 0.5, "channels": 0.12}
)
# Neighbouring channels of a small tensor; beyond these the colours repeat.
CHANNELS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8C959F")
ERROR_MAP = "magma_r"


def mix(colour: str, other: str, share: float) -> str:
    """`share` of the other colour in `colour`, both '#RRGGBB'."""
    pairs = zip(_parts(colour), _parts(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02X}" for a, b in pairs)


def place_colour(storage: str, layout: str) -> str:
    """The fill of a value that lies there, both by their lower-case names."""
    return mix(STORAGE[storage], PAPER, LAYOUT_TINT.get(layout, 0.6))


def tint(colour: str) -> str:
    """A pale fill of the same hue, for dark text upon it."""
    return mix(colour, PAPER, 0.76)


def ink(colour: str) -> str:
    """The hue dark enough for text on white."""
    return mix(colour, INK, 0.42)


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
