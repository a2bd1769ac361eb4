"""Example cases of the pools on codes."""

from collections.abc import Iterator

import numpy as np

from qtoolkit.ops.examples import codes, qrange, reals
from qtoolkit.ops.spec import Example

Pair = tuple[int, int]


def average_examples() -> Iterator[Example]:
    """q8_avg_pool2d: every way of counting a window's cells."""
    yield _average("2x2", (2, 5, 8, 6), (2, 2))
    yield _average("no stride given", (1, 5, 9, 7), (3, 2), stride=())
    yield _average("overlapping", (1, 33, 7, 7), (3, 3), (1, 1))
    for ceil_mode in (False, True):
        for counted in (False, True):
            told = f"padding {'counted' if counted else 'left out'}{', ceil' if ceil_mode else ''}"
            yield _average(told, (1, 5, 8, 7), (3, 3), (2, 2), (1, 1), ceil_mode, counted)
    yield _average("ceil past the padding", (1, 3, 6, 6), (3, 3), (2, 2), (1, 1), True)
    yield _average("divisor_override", (1, 5, 7, 7), (3, 3), (2, 2), (1, 1), divisor=7)
    yield _average("whole input", (2, 7, 5, 7), (5, 7))
    yield _average("ties", (1, 5, 6, 6), (2, 2), q=(1.0, 0, 0.5, 0))
    yield _average("zero points at the ends", (1, 5, 6, 6), (2, 2), q=(0.1, -128, 0.1, 127))
    yield _average("fused range", (1, 5, 6, 6), (2, 2), q=(0.1, -3, 0.07, -9), clamp=(-9, 60))
    yield _average("range above the zero point", (1, 5, 6, 6), (2, 2), clamp=(9, 60))
    yield _average("no batch", (0, 5, 7, 7), (2, 2))
    yield _average("no channels", (1, 0, 7, 7), (2, 2))
    yield _average("one-sized", (1, 1, 1, 1), (1, 1))
    yield _average("uint8", (1, 5, 7, 7), (3, 3), (2, 2), (1, 1), dtype="uint8",
                   q=(0.1, 131, 0.08, 120))  # fmt: skip


def _average(
    label: str,
    x: tuple[int, ...],
    kernel: Pair,
    stride: tuple[int, ...] | None = None,
    padding: Pair = (0, 0),
    ceil_mode: bool = False,
    counted: bool = True,
    divisor: int | None = None,
    q: tuple[float, int, float, int] = (0.1, 3, 0.08, -5),
    dtype: str = "int8",
    clamp: Pair | None = None,
) -> Example:
    geometry = (kernel, kernel if stride is None else stride, padding, ceil_mode, counted, divisor)
    return Example(label, (codes(*x, dtype=dtype), *geometry, *q, *(clamp or qrange(dtype))))


def adaptive_examples() -> Iterator[Example]:
    """q8_adaptive_avg_pool2d: windows of equal and of unlike sizes."""
    for label, shape, size in (
        ("to one cell", (2, 33, 7, 7), (1, 1)),
        ("even windows", (1, 5, 8, 6), (4, 3)),
        ("unlike windows", (1, 5, 7, 5), (3, 2)),
        ("more windows than cells", (1, 5, 3, 2), (5, 7)),
        ("as it is", (1, 5, 5, 7), (5, 7)),
        ("no batch", (0, 5, 7, 7), (1, 1)),
        ("no channels", (1, 0, 7, 7), (1, 1)),
        ("one-sized", (1, 1, 1, 1), (1, 1)),
    ):
        yield Example(label, (codes(*shape), size, 0.1, 3, 0.05, -5, -128, 127))
    yield Example("ties", (codes(1, 5, 4, 4), (2, 2), 1.0, 0, 0.5, 0, -128, 127))
    yield Example("fused range", (codes(1, 5, 7, 7), (1, 1), 0.1, 3, 0.01, -5, -5, 60))
    yield Example("uint8", (codes(1, 5, 7, 7, dtype="uint8"), (2, 3), 0.1, 131, 0.05, 120, 0, 255))


def max_examples() -> Iterator[Example]:
    """max_pool2d on codes and floats."""
    for label, shape, geometry in (
        ("2x2", (2, 5, 8, 6), ((2, 2), (2, 2), (0, 0), (1, 1), False)),
        ("no stride given", (1, 33, 9, 7), ((3, 2), (), (0, 0), (1, 1), False)),
        ("padding", (1, 5, 7, 7), ((3, 3), (2, 2), (1, 1), (1, 1), False)),
        ("ceil", (1, 5, 8, 6), ((3, 3), (2, 2), (0, 0), (1, 1), True)),
        ("ceil and padding", (1, 5, 6, 8), ((3, 3), (2, 2), (1, 1), (1, 1), True)),
        ("dilated", (1, 5, 9, 9), ((3, 3), (1, 1), (1, 1), (2, 2), False)),
        ("no batch", (0, 5, 7, 7), ((2, 2), (2, 2), (0, 0), (1, 1), False)),
        ("one-sized", (1, 1, 1, 1), ((1, 1), (1, 1), (0, 0), (1, 1), False)),
    ):
        yield Example(label, (codes(*shape), *geometry))
    padded = ((3, 3), (2, 2), (1, 1), (1, 1), False)
    low = codes(1, 5, 7, 7)
    low[...] = -128
    yield Example("all at the lowest code", (low, *padded))
    yield Example("uint8", (codes(1, 5, 7, 7, dtype="uint8"), *padded))
    yield Example("float", (reals(1, 5, 7, 7) - 30, *padded))
    zeros = np.array([0.0, -0.0, -0.0, 0.0], np.float32).reshape(1, 2, 1, 2)
    yield Example("signs of zero", (zeros, (1, 2), (1, 2), (0, 0), (1, 1), False))
