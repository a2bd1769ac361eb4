"""Example cases of the ops that only move values about."""

from collections.abc import Iterator
from typing import Any

from qtoolkit.ops.examples import codes, reals
from qtoolkit.ops.spec import Example

SHAPES = ((2, 5, 7, 33), (2, 5, 7), (5, 7), (33,), (1, 1, 1, 1), (0, 5, 7, 7))
FAR = 2**63 - 1  # what torch writes for "to the end"


def _of(shape: tuple[int, ...], *args: Any) -> Iterator[Example]:
    """The case on int8, uint8 and float32."""
    told = f"{list(shape)} {args}" if args else str(list(shape))
    yield Example(f"int8{told}", (codes(*shape), *args))
    yield Example(f"uint8{told}", (codes(*shape, dtype="uint8"), *args))
    yield Example(f"float32{told}", (reals(*shape), *args))


def plain() -> Iterator[Example]:
    """Ops of no further argument."""
    for shape in SHAPES:
        yield from _of(shape)


transition = plain


def dropout() -> Iterator[Example]:
    """dropout as it is after training."""
    for shape in SHAPES:
        yield from _of(shape, 0.2, False)


def copied() -> Iterator[Example]:
    """clone and contiguous."""
    for shape in SHAPES:
        yield from _of(shape, None)


def pad() -> Iterator[Example]:
    """Constant and copied margins, unlike on all sides, and negative ones."""
    for widths in ((1, 1, 1, 1), (0, 1, 0, 1), (2, 0, 1, 3), (0, 0, 0, 0), (-1, 2, 1, -2)):
        yield from _of((1, 5, 7, 9), widths, "constant", 3)
    yield from _of((2, 5, 7, 5), (1, 2, 0, 1, 2, 0), "constant", None)
    yield from _of((2, 3, 5, 5), (0, 0, 0, 0, 1, 2, 1, 0), "constant", 7)
    yield from _of((2, 5, 9), (2, 3), "constant", 100)
    yield from _of((0, 5, 7, 7), (1, 1), "constant", 1)
    for mode in ("reflect", "replicate", "circular"):
        yield from _of((1, 5, 7, 9), (2, 1, 1, 3), mode, None)
    yield Example("the lowest code", (codes(1, 3, 5, 5), (1, 1, 1, 1), "constant", -128))


def constant_pad() -> Iterator[Example]:
    """The same with the value alone."""
    for widths in ((1, 1, 1, 1), (0, 1, 0, 1), (2, 0), (-1, 1, 0, 0)):
        yield from _of((1, 5, 7, 9), widths, 3)
    yield from _of((1, 1, 1, 1), (1, 0, 0, 1), 0)
    yield Example("the lowest code", (codes(1, 3, 5, 5), (1, 1, 1, 1), -128))


def cat() -> Iterator[Example]:
    """Along every axis; one tensor, an empty one, the same one twice."""
    shape = (2, 5, 7, 3)
    for dim in (0, 1, 2, 3, -1):
        other = list(shape)
        other[dim] = 4
        yield Example(f"axis {dim}", ((codes(*shape), codes(*other)), dim))
    x = codes(1, 3, 5, 5)
    yield Example("itself", ((x, x), 1))
    yield Example("one", ((x,), 1))
    yield Example("three", ((x, codes(1, 33, 5, 5), codes(1, 1, 5, 5)), 1))
    yield Example("an empty part", ((x, codes(1, 0, 5, 5)), 1))
    yield Example("an empty vector", ((codes(0), x), 1))
    yield Example("no batch", ((codes(0, 3, 5, 5), codes(0, 4, 5, 5)), 1))
    yield Example("rank 1", ((codes(5), codes(7)), 0))
    yield Example("rank 3", ((codes(2, 5, 7), codes(2, 3, 7)), -2))
    unsigned = (codes(1, 5, 3, 3, dtype="uint8"), codes(1, 7, 3, 3, dtype="uint8"))
    yield Example("uint8", (unsigned, 1))
    yield Example("float32", ((reals(1, 5, 3, 3), reals(1, 7, 3, 3)), 1))


def view() -> Iterator[Example]:
    """Flat, split, to more axes and to fewer, one of them left open."""
    for shape, size in (
        ((2, 5, 7, 3), (2, -1)), ((2, 5, 7, 3), (2, 5, 21)), ((2, 5, 7, 3), (-1,)),
        ((2, 33), (2, 33, 1, 1)), ((2, 6, 5), (2, 2, 3, 5)), ((1, 1, 1, 1), (1,)),
        ((1,), ()), ((0, 5, 7), (0, 35)), ((2, 5, 7, 3), (7, 5, 3, 2)),
    ):  # fmt: skip
        yield from _of(shape, size)


def flatten() -> Iterator[Example]:
    """All axes, the last ones, two in the middle, one."""
    for shape, start, end in (
        ((2, 5, 7, 3), 1, -1), ((2, 5, 7, 3), 0, -1), ((2, 5, 7, 3), 1, 2), ((2, 33, 1, 1), 1, -1),
        ((5, 7), 1, 1), ((0, 5, 7), 1, -1),
    ):  # fmt: skip
        yield from _of(shape, start, end)


def permute() -> Iterator[Example]:
    """To channels last and back, reversed, as it is; ranks 1 to 5."""
    for shape, dims in (
        ((2, 5, 7, 3), (0, 2, 3, 1)), ((2, 5, 7, 3), (0, 3, 1, 2)), ((2, 5, 7, 3), (3, 2, 1, 0)),
        ((2, 5, 7, 3), (0, 1, 2, 3)), ((2, 5, 7), (0, -1, 1)), ((5, 7), (1, 0)), ((33,), (0,)),
        ((2, 3, 2, 5, 3), (0, 2, 1, 4, 3)), ((0, 5, 7), (2, 0, 1)),
    ):  # fmt: skip
        yield from _of(shape, dims)


def transpose() -> Iterator[Example]:
    """Neighbours, ends, an axis with itself."""
    for shape, first, second in (
        ((2, 5, 7, 3), 1, 3), ((2, 5, 7), 1, 2), ((5, 7), 0, 1), ((5, 7), -1, -2), ((33,), 0, 0),
        ((0, 5, 7), 0, 2),
    ):  # fmt: skip
        yield from _of(shape, first, second)


def squeeze() -> Iterator[Example]:
    """Every axis of size 1."""
    for shape in ((2, 33, 1, 1), (1, 5, 1, 7), (1, 1, 1, 1), (5, 7), (0, 1, 5)):
        yield from _of(shape)


def squeeze_dim() -> Iterator[Example]:
    """An axis of size 1, and one that is not."""
    for shape, dim in (((2, 33, 1, 1), 3), ((2, 33, 1, 1), -2), ((2, 5, 1), 0), ((1,), 0)):
        yield from _of(shape, dim)


def squeeze_dims() -> Iterator[Example]:
    """Several axes, some of size 1."""
    for shape, dims in (((2, 33, 1, 1), (2, 3)), ((1, 5, 1, 7), (0, 1, -2)), ((1, 1), (0, 1))):
        yield from _of(shape, dims)


def unsqueeze() -> Iterator[Example]:
    """Before, between, behind."""
    for shape, dim in (((2, 33), 0), ((2, 33), -1), ((5, 7, 3), 2), ((33,), 1), ((0, 5), 1)):
        yield from _of(shape, dim)


def cut() -> Iterator[Example]:
    """Both bounds, one, none; negative, beyond the tensor, empty; steps."""
    shape = (2, 5, 7, 9)
    for dim, start, end, step in (
        (1, 0, 3, 1), (2, 1, FAR, 1), (3, -4, -1, 1), (3, None, None, 2), (1, 3, 2, 1),
        (-1, 0, FAR, 3), (0, 1, 100, 1),
    ):  # fmt: skip
        yield from _of(shape, dim, start, end, step)
    yield from _of((33,), 0, 5, 7, 1)
