"""q8_matmul beside sums of Python's own integers and torch, and what fuse makes of products."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import qtoolkit as qt
from build import Builder, tensor
from qtoolkit.errors import ShapeError
from qtoolkit.graph import Arg, DType, Graph, Ref
from qtoolkit.ops import OPS, Example
from qtoolkit.ops.examples import one_node
from qtoolkit.passes.fuse import fuse
from qtoolkit.passes.rules import FuseRules
from qtoolkit.trace import PassTrace, run_pass

EXAMPLES = {e.label: e for e in OPS["q8_matmul"].examples()}


def exactly(example: Example) -> np.ndarray:
    """Mode 'fixed' or 'float' by sums of int64 and Fractions; rounding as numbers.md says."""
    a, b, a_zero, b_zero, multiplier, shift, _, y_zero, low, high, mode = example.args
    product = torch.matmul(
        torch.from_numpy(a.astype(np.int64)) - a_zero, torch.from_numpy(b.astype(np.int64)) - b_zero
    )
    factor = Fraction(int(multiplier[0])) * Fraction(2) ** int(shift[0] - 31)

    def code(acc: int) -> int:
        if mode == "float":
            steps = int(np.rint(np.float32(acc) * np.float32(float(factor))))
        else:
            steps = int(np.floor(Fraction(acc) * factor + Fraction(1, 2)))
        return y_zero + min(max(steps, low - y_zero), high - y_zero)

    flat = [code(int(v)) for v in product.reshape(-1)]
    return np.array(flat, a.dtype).reshape(tuple(product.shape))


@pytest.mark.parametrize("label", [n for n in EXAMPLES if "double" not in n])
def test_q8_matmul_is_the_integer_product_rescaled(label: str) -> None:
    example = EXAMPLES[label]
    assert np.array_equal(OPS["q8_matmul"].reference(*example.args), exactly(example))


@pytest.mark.parametrize("backend", qt.available())
@pytest.mark.parametrize("label", EXAMPLES)
def test_every_backend_that_runs_gives_the_same_codes(backend: str, label: str) -> None:
    graph, values = one_node(OPS["q8_matmul"], EXAMPLES[label])
    run = qt.execute(qt.compile(graph, backend=backend).result, tuple(values.values()))
    assert np.array_equal(run.outputs[0], OPS["q8_matmul"].reference(*EXAMPLES[label].args))


@pytest.mark.parametrize("backend", qt.available())
@pytest.mark.parametrize("slot", [0, 1])
def test_either_operand_may_be_a_constant(backend: str, slot: int) -> None:
    b = Builder()
    args = list(EXAMPLES["batch by one matrix"].args)
    given: list[Arg] = [b.input("x", *args[1 - slot].shape, dtype=DType.INT8)]
    given.insert(slot, b.const("c", args[slot]))
    scales = [b.const(f"s{i}", args[i]) for i in (4, 5)]
    y = b.op("y", "q8_matmul", (*given, *args[2:4], *scales, *args[6:]),
             tensor(3, 5, 9, dtype=DType.INT8))  # fmt: skip
    run = qt.execute(qt.compile(b.graph(y), backend=backend).result, args[1 - slot])
    assert np.array_equal(run.outputs[0], OPS["q8_matmul"].reference(*args))


def test_what_does_not_multiply_is_refused() -> None:
    infer = OPS["q8_matmul"].infer
    one = tensor(1, dtype=DType.INT32)
    rest = (0, 0, one, one, 0.1, 0, -128, 127, "float")
    codes = [tensor(*s, dtype=DType.INT8) for s in ((5, 7), (6, 7), (2, 7, 3), (3, 7, 7), ())]
    for a, b, told in ((0, 1, "inner size"), (2, 3, "inner size"), (0, 4, "rank 1 at least")):
        with pytest.raises(ShapeError, match=told):
            infer(codes[a], codes[b], *rest)
    with pytest.raises(ShapeError, match="out_multiplier"):
        infer(
            codes[0], tensor(7, 3, dtype=DType.INT8), 0, 0, tensor(3, dtype=DType.INT32), *rest[3:]
        )


# fuse


def fused(graph: Graph, rules: FuseRules = FuseRules()) -> PassTrace:  # noqa: B008
    return run_pass("fuse", lambda g: fuse(g, rules), graph)


def reasons(trace: PassTrace) -> str:
    return "\n".join(s.reason for s in trace.steps if s.kind == "reject")


def by_constant(axis: int | None, turned: bool = False, bias: object = (0.5,) * 3) -> Graph:
    """x[2,4] @ w[4,3] + bias as addmm; w is stored as [3,4] and transposed if `turned`."""
    b = Builder()
    x = b.dequantize("dx", b.quantize("qx", b.input("x", 2, 4), (2, 4), 0.1), (2, 4), 0.1)
    shape = (3, 4) if turned else (4, 3)
    codes = b.const("w", np.arange(12, dtype=np.int8).reshape(shape))
    if axis is None:
        w = b.dequantize("dw", codes, shape, 0.1)
    else:
        w = b.dequantize_channels("dw", codes, shape, [0.1] * shape[axis], axis)
    if turned:
        w = b.op("t", "aten.t.default", (w,), tensor(4, 3))
    y = b.op("addmm", "aten.addmm.default",
             (b.const("b", np.asarray(bias, np.float32)), x, w, 1, 1), tensor(2, 3))  # fmt: skip
    return b.graph(b.dequantize("dy", b.quantize("qy", y, (2, 3), 0.1), (2, 3), 0.1))


@pytest.mark.parametrize("turned", [False, True])
def test_addmm_becomes_linear_by_the_matrix_as_linear_stores_it(turned: bool) -> None:
    after = fused(by_constant(None, turned)).after
    assert [n.op for n in after.nodes] == ["input", "quantize", "q8_linear", "dequantize"]
    assert str(after["addmm"].args[1]) == ("@w" if turned else "@w/transposed")
    stored = np.arange(12).reshape((3, 4) if turned else (4, 3))
    assert np.array_equal(after.array(after["addmm"].args[1]), stored if turned else stored.T)
    # 0.5 at a scale of 0.01
    assert list(after.array(after["addmm"].args[2])) == [50, 50, 50]


@pytest.mark.parametrize(
    ("axis", "turned", "told"),
    [(0, False, "axis 0 (4 scales), which is K"), (1, False, "axis 1 (3 scales), its outputs"),
     (1, True, "axis 0 (4 scales), which is K"), (0, True, "axis 1 (3 scales), its outputs")],
)  # fmt: skip
def test_a_per_channel_matrix_is_declined_by_the_axis_of_the_product(
    axis: int, turned: bool, told: str
) -> None:
    trace = fused(by_constant(axis, turned))
    assert told in reasons(trace) and trace.after["addmm"].op == "aten.addmm.default"


@pytest.mark.parametrize("bias", [0.5, (0.5,), ((0.5,) * 3,)])
def test_a_bias_of_addmm_is_one_value_for_each_output_or_for_all(bias: object) -> None:
    after = fused(by_constant(None, bias=bias)).after
    assert list(after.array(after["addmm"].args[2])) == [50, 50, 50]


@pytest.mark.parametrize("bias", [((0.5,), (0.5,)), ((0.5,) * 3,) * 2])
def test_a_bias_of_one_value_per_row_or_cell_is_declined(bias: object) -> None:
    assert "is not one value for each of 3 outputs" in reasons(fused(by_constant(None, bias=bias)))


def product(scales: tuple[float, float] = (0.1, 0.2), terms: int = 4) -> Graph:
    b = Builder()
    shapes = ((2, terms), (terms, 3))
    d = [
        b.dequantize(f"d{i}", b.quantize(f"q{i}", b.input(f"x{i}", *s), s, scale, 7), s, scale, 7)
        for i, (s, scale) in enumerate(zip(shapes, scales, strict=True))
    ]
    y = b.op("mm", "aten.mm.default", d, tensor(2, 3))
    y = b.op("relu", "aten.relu.default", (y,), tensor(2, 3))
    return b.graph(b.dequantize("dy", b.quantize("qy", y, (2, 3), 0.04, 5), (2, 3), 0.04, 5))


def test_two_activations_and_a_relu_become_q8_matmul() -> None:
    after = fused(product()).after
    node = after["mm"]
    assert (node.op, node.origin) == ("q8_matmul", ("mm", "relu"))
    assert node.args[:4] == (Ref("q0"), Ref("q1"), 7, 7) and node.args[-3:-1] == (5, 127)
    # 0.1 * 0.2 / 0.04, each rounded to float32 first
    multiplier, shift = (int(after.array(a)[0]) for a in node.args[4:6])
    assert multiplier * 2.0 ** (shift - 31) == pytest.approx(0.5, rel=1e-7)


def test_switches_of_fuse_hold_for_products_too() -> None:
    off = FuseRules(replace_all_arguments=False)
    assert "%d1 stays float" in reasons(fused(product(), off))
    unchecked = fused(product(), FuseRules(check_relu_zero_point=False)).after["mm"]
    assert unchecked.args[-3:-1] == (-128, 127)


def test_a_product_that_may_wrap_is_a_warning_with_the_figure() -> None:
    told = [s.reason for s in fused(product(terms=120_000)).steps if s.kind == "warning"]
    assert len(told) == 1 and str(120_000 * 135 * 135) in told[0]


def test_a_second_matrix_that_is_float_is_named() -> None:
    b = Builder()
    x = b.dequantize("dx", b.quantize("qx", b.input("x", 2, 4), (2, 4), 0.1), (2, 4), 0.1)
    y = b.op("mm", "aten.mm.default", (x, b.input("z", 4, 3)), tensor(2, 3))
    graph = b.graph(b.dequantize("dy", b.quantize("qy", y, (2, 3), 0.1), (2, 3), 0.1))
    assert "its second matrix is not quantized" in reasons(fused(graph))
