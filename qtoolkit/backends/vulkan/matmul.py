"""The kernel of q8_matmul: both operands are packed along the axis that is summed over."""

from qtoolkit.backends.vulkan.demands import PACKED_WIDTH, demand, fits, is_runtime, of
from qtoolkit.backends.vulkan.dispatch import DOT, Bound, Dispatch, Site, params, placed_of
from qtoolkit.backends.vulkan.weighted import factors
from qtoolkit.graph import Graph, Node
from qtoolkit.kernel import Kernel
from qtoolkit.layout import PACKED_AXIS, Layout, Reps
from qtoolkit.qparams import MODES

# Which of C and H the rows of a matrix lie along: [B,M,N] lies as [N,C,L] does, with height 1.
ROWS = {2: Layout.HEIGHT, 3: Layout.CHANNELS, 4: Layout.HEIGHT}


def bind_matmul(site: Site) -> Bound:
    """a[...,M,K] packed along K, b[...,K,N] along K too, y[...,M,N] along N."""
    a_zero, b_zero, multiplier, shift = site.args[2:6]
    mode = site.args[10]
    a, b, y = site.x(0), site.x(1), site.y()
    less = 128 * y.unsigned
    y_codes = tuple(int(v) - less for v in site.args[7:10])
    rows = (PACKED_AXIS[ROWS[placed_of(t).type.rank]] for t in (a, b, y))
    numbers = (
        y.texels, int(a_zero) - less, int(b_zero) - less,
        *(int(v[0]) for v in factors(multiplier, shift, mode)), *y_codes, *rows,
    )  # fmt: skip
    return (
        Dispatch(
            "q8_matmul",
            {"a": a, "b": b, "y": y},
            params(a, b, y, numbers),
            y.texels,
            (MODES.index(mode),),
            feature=DOT,
        ),
    )


def _not_matmul(node: Node, graph: Graph) -> str | None:
    if not (is_runtime(node, 0) or is_runtime(node, 1)):
        return "both operands are constants"
    types = [t for t in map(graph.type_of, node.args[:2]) if t is not None]
    ranks = {t.rank for t in types}
    if 1 in ranks:
        return "an operand is a vector, whose axis has no rows beside it"
    if {3, 4} <= ranks:
        return "rank 3 is not aligned with rank 4"
    if any(t.numel == 0 for t in types):
        return "an operand is empty: nothing to sum"
    return fits(node, graph)


def _reps(node: Node, graph: Graph) -> Reps:
    a, b = graph.type_of(node.args[0]), graph.type_of(node.args[1])
    assert b is not None
    inputs = {0: of(a, PACKED_WIDTH), 1: of(b, (ROWS[b.rank],))}
    return demand(node, graph, inputs, of(node.type, PACKED_WIDTH))


KERNELS: dict[str, tuple[Kernel, ...]] = {
    "q8_matmul": (Kernel("q8_matmul", "q8_matmul", bind_matmul, _reps, _not_matmul),),
}
