"""The bias of a fused op: missing, float or dequantized, as int32 codes at x_scale * w_scale[o]."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qtoolkit.draft import Draft
from qtoolkit.errors import QParamError
from qtoolkit.graph import Arg, Const, Constant, Node
from qtoolkit.passes.qdq import DEQUANTIZE, Operand, read_qparams
from qtoolkit.passes.rules import FuseRules
from qtoolkit.qparams import bias_codes, bias_scale
from qtoolkit.rewrite import Note, Reject

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """codes[O], what a reader should know of them, and the nodes matched on the way."""

    codes: NDArray[np.int32]
    notes: tuple[Note, ...] = ()
    matched: tuple[str, ...] = ()


def bias_of(
    node: Node, arg: Arg, channels: int, x: Operand, w: Operand, draft: Draft, rules: FuseRules
) -> Bias | Reject:
    """The codes of a node's bias `arg`, float or dequantized or missing, for its `channels`.

    A missing one is zeros. Raises QParamError, if rules.strict, for a code beyond int32.
    """
    if arg is None:
        return Bias(np.zeros(channels, np.int32))
    x_scale = float(x.qparams.scale[0])
    matched: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    if isinstance(arg, Const):
        stored = draft.constants[arg.name]
        real = stored.array
    else:
        source = draft[next(node.with_args([arg]).refs()).node]
        if source.op not in DEQUANTIZE or not isinstance(source.args[0], Const):
            return Reject(("its bias %{} is computed at run time", source.name))
        matched = (source.name,)
        stored = draft.constants[source.args[0].name]
        codes = stored.array
        stated = _bias_qparams(source, draft)
        expected = bias_scale(x_scale, w.qparams.scale).astype(np.float32)
        kept = np.array_equal(stated[0], np.broadcast_to(expected, stated[0].shape))
        if codes is not None and kept and not stated[1].any() and _fits(stored, channels):
            return Bias(_spread(codes.astype(np.int32), channels), (), matched)
        notes = (Note("bias", ("bias requantized: its scale {} is not x_scale * w_scale {}",
                               float(stated[0].flat[0]), float(expected.flat[0]))),)  # fmt: skip
        real = None if codes is None else (codes.astype(np.float64) - stated[1]) * stated[0]
    if real is None:
        return Reject(("its bias has no values",))
    if not _fits(stored, channels):
        return Reject(("its bias {} is not one value for each of {} outputs",
                       stored.type, channels))  # fmt: skip
    real = _spread(real, channels)
    wanted = bias_codes(real, x_scale, w.qparams.scale)
    over = np.flatnonzero(np.abs(wanted) > INT32_MAX)
    if over.size:
        worst = int(over[np.argmax(np.abs(wanted[over]))])
        told = (
            "bias of channel {} is {:.6g}, code {:.4g}, beyond int32 ({} of {} channels are); its "
            "least admissible scale is {:.4g}",
            worst, float(real[worst]), float(wanted[worst]), over.size, wanted.size,
            abs(float(real[worst])) / INT32_MAX,
        )  # fmt: skip
        if rules.strict:
            raise QParamError(f"%{node.name}: " + told[0].format(*told[1:]))
        return Reject(told)
    return Bias(wanted.astype(np.int32), notes, matched)


def _fits(stored: Constant, channels: int) -> bool:
    """One value per output or one for all, broadcast along the last axis."""
    *lead, last = stored.type.sizes or (1,)
    return all(size == 1 for size in lead) and last in (1, channels)


def _spread(values: NDArray[Any], channels: int) -> NDArray[Any]:
    return np.array(np.broadcast_to(values.reshape(-1), (channels,)))


def _bias_qparams(node: Node, draft: Draft) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scale and zero point of an imported bias; the derived scale may leave a tensor's domain."""
    try:
        q = read_qparams(node, draft)
        return q.scale, q.zero_point.astype(np.int64)
    except QParamError:
        scale, zero = node.args[1], node.args[2]
        s = draft.constants[scale.name].array if isinstance(scale, Const) else scale
        z = draft.constants[zero.name].array if isinstance(zero, Const) else zero
        return (
            np.atleast_1d(np.asarray(s, np.float64)).astype(np.float32),
            np.atleast_1d(np.asarray(z, np.int64)),
        )
