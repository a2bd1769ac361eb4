"""Ops that only move values about: the same on codes as on real numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from qtoolkit.errors import ShapeError, UnsupportedOp
from qtoolkit.graph import TensorType
from qtoolkit.ops import move_examples as cases
from qtoolkit.ops.elementwise import same_type
from qtoolkit.ops.shapes import Array, Ints, axis_of, viewed
from qtoolkit.ops.spec import OpSpec
from qtoolkit.qparams import QParams

# Ops that give the same cells, in row-major order, another shape; and those that change nothing.
VIEWS = (
    "aten.view.default", "aten.reshape.default", "aten.flatten.using_ints",
    "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze.default",
)  # fmt: skip
IDENTITIES = (
    "aten.dropout.default", "aten.feature_dropout.default", "aten.clone.default",
    "aten.contiguous.default", "aten.alias.default", "aten.detach.default",
)  # fmt: skip
PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def itself(x: Array, *rest: Any) -> Array:
    """The values as they are."""
    return x


def pad(x: Array, widths: Sequence[int], mode: str, value: float | None) -> Array:
    """Pad the last axes, innermost pair first; negative widths crop. On codes, value is a code."""
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + _pairs(widths)
    sized = zip(x.shape, pairs, strict=True)
    kept = x[tuple(slice(max(-a, 0), s - max(-b, 0)) for s, (a, b) in sized)]
    grown = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode != "constant":
        return np.pad(kept, grown, mode=PAD_MODES[mode])  # type: ignore[call-overload,no-any-return]
    return np.pad(kept, grown, constant_values=x.dtype.type(value or 0))


def constant_pad_nd(x: Array, widths: Sequence[int], value: float) -> Array:
    """pad with mode 'constant'."""
    return pad(x, widths, "constant", value)


def _pairs(widths: Sequence[int]) -> list[tuple[int, int]]:
    """(before, after) per padded axis, outermost first."""
    return list(zip(widths[::2], widths[1::2], strict=True))[::-1]


def cat(tensors: Sequence[Array], dim: int) -> Array:
    """Join along `dim`; an empty tensor of rank 1 joins anything, as in torch."""
    return np.concatenate([t for t in tensors if t.shape != (0,)] or list(tensors), axis=dim)


def view(x: Array, size: Sequence[int]) -> Array:
    """The same cells, in row-major order, under another shape."""
    return x.reshape(viewed(x.shape, size))


def flatten(x: Array, start: int, end: int) -> Array:
    """Axes start..end as one."""
    return x.reshape(_flattened(x.shape, start, end))


def _flattened(shape: tuple[int, ...], start: int, end: int) -> tuple[int, ...]:
    first, last = axis_of(start, len(shape)), axis_of(end, len(shape))
    if first > last:
        raise ShapeError(f"flatten: axis {start} comes after axis {end}")
    cells = int(np.prod(shape[first : last + 1], dtype=np.int64))
    return (*shape[:first], cells, *shape[last + 1 :])


def permute(x: Array, dims: Sequence[int]) -> Array:
    """Axis i of the result is axis dims[i] of x."""
    return np.transpose(x, tuple(dims))


def transpose(x: Array, first: int, second: int) -> Array:
    """Exchange two axes."""
    return np.swapaxes(x, first, second) if x.ndim else x


def squeeze(x: Array, dims: Ints | None = None) -> Array:
    """Drop the axes of size 1 among `dims`, among all if None; others stay."""
    return x.reshape(_squeezed(x.shape, dims))


def _squeezed(shape: tuple[int, ...], dims: Ints | None = None) -> tuple[int, ...]:
    rank = len(shape)
    given = range(rank) if dims is None else (dims,) if isinstance(dims, int) else dims
    gone = {axis_of(d, rank) for d in given}
    return tuple(s for i, s in enumerate(shape) if i not in gone or s != 1)


def unsqueeze(x: Array, dim: int) -> Array:
    """A new axis of size 1 at `dim`."""
    return np.expand_dims(x, axis_of(dim, x.ndim + 1))


def cut(x: Array, dim: int, start: int | None, end: int | None, step: int) -> Array:
    """x[start:end:step] along `dim`; bounds beyond the tensor are cut to it."""
    at = [slice(None)] * x.ndim
    at[dim] = slice(start, end, step)
    return x[tuple(at)]


def split(x: Array, sizes: Ints, dim: int) -> tuple[Array, ...]:
    """Consecutive parts of x along `dim`, of one size (the last may be less) or of given sizes."""
    ends = np.cumsum(_part_sizes(x.shape[dim], sizes))[:-1]
    return tuple(np.split(x, ends, axis=dim))


def _part_sizes(size: int, wanted: Ints) -> tuple[int, ...]:
    if not isinstance(wanted, int):
        if sum(wanted) != size:
            raise ShapeError(f"split sizes {tuple(wanted)} do not add up to {size}")
        return tuple(wanted)
    if wanted < 1:
        raise ShapeError(f"split size {wanted} must be at least 1")
    whole, rest = divmod(size, wanted)
    return (wanted,) * whole + ((rest,) if rest or not whole else ())


def chunk(x: Array, chunks: int, dim: int) -> tuple[Array, ...]:
    """At most `chunks` parts of equal size, the last one less."""
    return split(x, _chunk_size(x.shape[dim], chunks), dim)


def _chunk_size(size: int, chunks: int) -> int:
    return max(-(-size // chunks), 1)


def _reshaped(op: Any) -> Any:
    """A shape rule from a function of (shape, *args)."""

    def infer(x: TensorType, *args: Any) -> tuple[TensorType, ...]:
        return (TensorType(tuple(op(x.sizes, *args)), x.dtype),)

    return infer


def _pad_shape(
    shape: tuple[int, ...], widths: Sequence[int], mode: Any = "constant", value: Any = None
) -> tuple[int, ...]:
    if len(widths) % 2 or len(widths) > 2 * len(shape):
        raise ShapeError(f"pad: {len(widths)} widths do not fit rank {len(shape)}; give pairs")
    if isinstance(mode, str) and mode not in PAD_MODES:
        raise UnsupportedOp(f"pad: mode {mode!r}; there are {', '.join(PAD_MODES)}")
    first = len(shape) - len(widths) // 2
    padded = [s + a + b for s, (a, b) in zip(shape[first:], _pairs(widths), strict=True)]
    if min(padded, default=0) < 0:
        raise ShapeError(f"pad: widths {tuple(widths)} crop more than {list(shape)} has")
    return (*shape[:first], *padded)


def _cat_type(tensors: Sequence[TensorType], dim: int) -> tuple[TensorType, ...]:
    full = [t for t in tensors if t.sizes != (0,)] or list(tensors)
    at = axis_of(dim, full[0].rank)
    rest = {(*t.sizes[:at], *t.sizes[at + 1 :], t.dtype) for t in full}
    if len(rest) != 1:
        raise ShapeError(f"cat: {' and '.join(map(str, full))} differ beside axis {dim}")
    joint = sum(t.sizes[at] for t in full)
    return (TensorType((*full[0].sizes[:at], joint, *full[0].sizes[at + 1 :]), full[0].dtype),)


def _permuted(shape: tuple[int, ...], dims: Sequence[int]) -> tuple[int, ...]:
    order = [axis_of(d, len(shape)) for d in dims]
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(f"permute: {tuple(dims)} does not name each axis of {list(shape)} once")
    return tuple(shape[d] for d in order)


def _transposed(shape: tuple[int, ...], first: int, second: int) -> tuple[int, ...]:
    sizes = list(shape)
    if sizes:
        a, b = axis_of(first, len(sizes)), axis_of(second, len(sizes))
        sizes[a], sizes[b] = sizes[b], sizes[a]
    return tuple(sizes)


def _unsqueezed(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    at = axis_of(dim, len(shape) + 1)
    return (*shape[:at], 1, *shape[at:])


def _cut_shape(
    shape: tuple[int, ...], dim: int, start: int | None, end: int | None, step: int
) -> tuple[int, ...]:
    at = axis_of(dim, len(shape))
    if step < 1:
        raise ShapeError(f"slice: step {step} must be at least 1")
    return (*shape[:at], len(range(*slice(start, end, step).indices(shape[at]))), *shape[at + 1 :])


def _split_type(x: TensorType, sizes: Ints, dim: int) -> tuple[TensorType, ...]:
    at = axis_of(dim, x.rank)
    parts = _part_sizes(x.sizes[at], sizes)
    return tuple(TensorType((*x.sizes[:at], p, *x.sizes[at + 1 :]), x.dtype) for p in parts)


def _chunk_type(x: TensorType, chunks: int, dim: int) -> tuple[TensorType, ...]:
    return _split_type(x, _chunk_size(x.sizes[axis_of(dim, x.rank)], chunks), dim)


def _dropout_type(x: TensorType, p: float, train: bool) -> tuple[TensorType, ...]:
    if train:
        raise UnsupportedOp("dropout in training mode; call module.eval() before capture")
    return same_type(x)


def _kept(x: QParams | None, *rest: Any) -> QParams | None:
    """The input's qparams: the op leaves every axis where it is."""
    return x


def _shared(x: QParams | None, *rest: Any) -> QParams | None:
    """The input's qparams, if one scale stands for the whole tensor; its axis may move else."""
    return None if x is None or x.per_channel else x


def _first(tensors: Sequence[QParams | None], dim: int) -> QParams | None:
    """The first known qparams: cat joins codes of one meaning, and a constant's are not told."""
    return _shared(next((q for q in tensors if q is not None), None))


def _mover(name: str, schema: str, infer: Any, reference: Any, examples: Any) -> OpSpec:
    kept = _kept if reference is itself or "pad" in name else _shared
    return OpSpec(name, tuple(schema.split()), infer, reference, examples, kept, moves=True)


_view, _same = _reshaped(viewed), same_type
_pad, _squeezed_type = _reshaped(_pad_shape), _reshaped(_squeezed)

SPECS = (
    _mover("transition", "x", _same, itself, cases.transition),
    _mover("aten.dropout.default", "input p train", _dropout_type, itself, cases.dropout),
    _mover("aten.feature_dropout.default", "input p train", _dropout_type, itself, cases.dropout),
    _mover("aten.clone.default", "self memory_format", _same, itself, cases.copied),
    _mover("aten.contiguous.default", "self memory_format", _same, itself, cases.copied),
    _mover("aten.alias.default", "self", _same, itself, cases.plain),
    _mover("aten.detach.default", "self", _same, itself, cases.plain),
    _mover("aten.pad.default", "self pad mode value", _pad, pad, cases.pad),
    _mover("aten.constant_pad_nd.default", "self pad value", _pad, constant_pad_nd,
           cases.constant_pad),
    OpSpec("aten.cat.default", ("tensors", "dim"), _cat_type, cat, cases.cat, _first, moves=True),
    _mover("aten.view.default", "self size", _view, view, cases.view),
    _mover("aten.reshape.default", "self shape", _view, view, cases.view),
    _mover("aten.flatten.using_ints", "self start_dim end_dim", _reshaped(_flattened), flatten,
           cases.flatten),
    _mover("aten.permute.default", "self dims", _reshaped(_permuted), permute, cases.permute),
    _mover("aten.transpose.int", "self dim0 dim1", _reshaped(_transposed), transpose,
           cases.transpose),
    _mover("aten.squeeze.default", "self", _squeezed_type, squeeze, cases.squeeze),
    _mover("aten.squeeze.dim", "self dim", _squeezed_type, squeeze, cases.squeeze_dim),
    _mover("aten.squeeze.dims", "self dim", _squeezed_type, squeeze, cases.squeeze_dims),
    _mover("aten.unsqueeze.default", "self dim", _reshaped(_unsqueezed), unsqueeze,
           cases.unsqueeze),
    _mover("aten.slice.Tensor", "self dim start end step", _reshaped(_cut_shape), cut, cases.cut),
    OpSpec("aten.split.Tensor", ("self", "split_size", "dim"), _split_type, split,
           qparams=_shared),
    OpSpec("aten.split_with_sizes.default", ("self", "split_sizes", "dim"), _split_type, split,
           qparams=_shared),
    OpSpec("aten.chunk.default", ("self", "chunks", "dim"), _chunk_type, chunk, qparams=_shared),
    OpSpec("getitem", ("x", "index"), _same, itself, qparams=_kept),
)  # fmt: skip
