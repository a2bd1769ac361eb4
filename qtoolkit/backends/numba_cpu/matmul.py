"""The kernel of q8_matmul: the right matrices are packed at run time, then as in q8_linear."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from qtoolkit.backends.numba_cpu.conv import Packed, code_rule, rescaling, row_products
from qtoolkit.backends.numba_cpu.memory import PLAIN, Array, contiguous, demand, fill
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Bound, Kernel
from qtoolkit.layout import Reps


def bind_matmul(args: Sequence[Any]) -> Bound:
    """q8_matmul; either operand may be a constant."""
    a_zero, b_zero, multiplier, shift, _, y_zero, low, high, mode = args[2:]
    codes = code_rule(y_zero, low, high, mode)

    def multiplied(rows: Array, matrix: Array) -> Array:
        """y[M,N] from rows[M,K] and matrix[K,N]."""
        columns = matrix.shape[1]
        w = matrix.T.astype(np.int16) - np.int16(b_zero)
        packed = Packed.of(w[None], np.zeros(columns, np.int32))
        scales = rescaling(multiplier, shift, columns, mode)
        y: Array = row_products(packed, int(a_zero), scales, codes)(contiguous(rows))
        return y

    def run(*tensors: Array) -> Array:
        a, b = fill(args[:2], tensors)
        rows, matrices = np.atleast_2d(a), b[:, None] if b.ndim == 1 else b
        K, N = matrices.shape[-2:]
        if matrices.size == K * N:
            lead = np.broadcast_shapes(rows.shape[:-2], matrices.shape[:-2])
            flat = multiplied(rows.reshape(prod(rows.shape[:-1]), K), matrices.reshape(K, N))
            y = flat.reshape(*lead, rows.shape[-2], N)
        else:
            y = _batched(rows, matrices)
        return contiguous(y.reshape(_shape(a, b, y)))

    def _batched(rows: Array, matrices: Array) -> Array:
        lead = np.broadcast_shapes(rows.shape[:-2], matrices.shape[:-2])
        rows = np.broadcast_to(rows, (*lead, *rows.shape[-2:]))
        matrices = np.broadcast_to(matrices, (*lead, *matrices.shape[-2:]))
        y = np.empty((*lead, rows.shape[-2], matrices.shape[-1]), rows.dtype)
        for at in np.ndindex(lead):
            y[at] = multiplied(rows[at], matrices[at])
        return y

    return run


def _shape(a: Array, b: Array, y: Array) -> tuple[int, ...]:
    """The shape of y without the axes that vectors were given."""
    rows = () if a.ndim == 1 else y.shape[-2:-1]
    columns = () if b.ndim == 1 else y.shape[-1:]
    return (*y.shape[:-2], *rows, *columns)


def _reps(node: Node, graph: Graph) -> Reps:
    return demand(node, graph, PLAIN, PLAIN, tensors=2)


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "q8_matmul": (Kernel("matmul", "q8_matmul", bind_matmul, _reps),),
}
