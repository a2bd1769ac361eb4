"""What the ops mean: shape rules and references beside torch, and the faults others met."""

from collections.abc import Callable
from itertools import product
from math import floor
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines torch.ops.quantized_decomposed
from torch.nn import functional

from build import Builder, tensor
from qtoolkit import backends
from qtoolkit.errors import QParamError, ShapeError, UnknownName, UnsupportedOp
from qtoolkit.graph import DType, TensorType
from qtoolkit.ops import OPS, Example, conv, linear, tensor_qparams
from qtoolkit.ops.elementwise import q8_add
from qtoolkit.ops.examples import codes, factors, one_node, qrange, reals, sums, types_of
from qtoolkit.ops.requantize import requantize, rescale, wrap
from qtoolkit.qparams import MODES, QParams, multiplier_shift, ratio

Array = np.ndarray[Any, Any]
ATEN = tuple(n for n in OPS if n.startswith(("aten.", "quantized_decomposed.")))
MOVERS = tuple(n for n in ATEN if OPS[n].moves)
HARD_SUMS = (2**24 + 1, 2**25 + 2, 2**31 - 1)


def torch_op(name: str) -> Any:
    space, op, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, space), op), overload)


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


def to_torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, DType):
        return getattr(torch, value.value)
    return [to_torch(v) for v in value] if isinstance(value, tuple) else value


def torch_result(name: str, args: tuple[Any, ...]) -> list[Array]:
    """What torch's own op gives for the same arguments, keyword-only ones by name."""
    schema = torch_op(name)._schema.arguments
    given = list(zip(schema, map(to_torch, args), strict=True))
    positional = [v for a, v in given if not a.kwarg_only]
    keywords = {a.name: v for a, v in given if a.kwarg_only and v is not None}
    result = torch_op(name)(*positional, **keywords)
    return [r.numpy() for r in (result if isinstance(result, list | tuple) else [result])]


def our_result(name: str, args: tuple[Any, ...]) -> list[Array]:
    result = OPS[name].reference(*args)
    return list(result) if isinstance(result, tuple) else [result]


# schemas and shape rules


@pytest.mark.parametrize("name", ATEN)
def test_schema_is_torchs_in_torchs_order(name: str) -> None:
    assert OPS[name].schema == tuple(a.name for a in torch_op(name)._schema.arguments)


def test_constants_are_named_in_the_schema_and_rows_bear_their_names() -> None:
    for name, spec in OPS.items():
        assert spec.name == name and set(spec.constants) <= set(spec.schema)
        assert [spec.position(s) for s in spec.schema] == list(range(len(spec.schema)))


def test_references_leave_their_operands_as_they_are() -> None:
    for spec in OPS.values():
        for example in spec.examples():
            arrays = [a for a in example.args if isinstance(a, np.ndarray)]
            before = [a.tobytes() for a in arrays]
            spec.reference(*example.args)
            assert [a.tobytes() for a in arrays] == before, (spec.name, example.label)


def t(*shape: int, dtype: DType = DType.INT8) -> TensorType:
    return TensorType(shape, dtype)


I32, F32, F64 = DType.INT32, DType.FLOAT32, DType.FLOAT64


X, W, BIAS = t(1, 4, 5, 5), t(6, 4, 3, 3), t(6, dtype=I32)


def conv_types(
    x: TensorType = X, w: TensorType = W, bias: TensorType = BIAS,
    groups: int = 1, w_zero: int = 1, multipliers: int = 6, shifts: int = 6, padding: Any = (0, 0),
) -> tuple[Any, ...]:  # fmt: skip
    return (
        x, w, bias, (1, 1), padding, (1, 1), groups, 0, t(w_zero, dtype=I32), t(1, dtype=F64),
        t(multipliers, dtype=I32), t(shifts, dtype=I32), 0.1, 0, -128, 127, "float",
    )  # fmt: skip


def test_the_unbroken_conv_has_a_type() -> None:
    assert OPS["q8_conv2d"].infer(*conv_types()) == (t(1, 6, 3, 3),)


@pytest.mark.parametrize(
    ("op", "args", "told"),
    [
        ("q8_conv2d", conv_types(x=t(4, 5, 5)), "rank 3; it takes 4"),
        ("q8_conv2d", conv_types(x=t(1, 4, 5, 5, dtype=F32)), "does not hold int8 or uint8"),
        ("q8_conv2d", conv_types(w=t(6, 4, 3, 3, dtype=DType.UINT8)), "must hold int8"),
        ("q8_conv2d", conv_types(bias=t(5, dtype=I32)), r"bias .* must be int32\[6\]"),
        ("q8_conv2d", conv_types(bias=t(6, dtype=F32)), r"bias .* must be int32\[6\]"),
        ("q8_conv2d", conv_types(groups=2), "groups=2 wants 8 input channels"),
        ("q8_conv2d", conv_types(groups=0), "groups=0"),
        ("q8_conv2d", conv_types(w_zero=2), "w_zero .* 1 value or one for each of 6"),
        ("q8_conv2d", conv_types(multipliers=5), "out_multiplier .* 1 value or one for each of 6"),
        ("q8_conv2d", conv_types(shifts=4), "out_shift .* 1 value or one for each of 6"),
        ("q8_conv2d", conv_types(x=t(1, 4, 2, 5)), "no window of 3 .* size 2"),
        ("q8_conv2d", conv_types(padding=(1, 1, 1)), "padding .* has 3 values"),
        ("aten.conv2d.default",
         (t(1, 4, 5, 5, dtype=F32), t(6, 4, 3, 3, dtype=F32), t(4, dtype=F32), (1,), (0,), (1,), 1),
         "one value per output"),
        ("q8_add", (t(2, 3), t(4, 3), 1.0, 0, 1.0, 0, 1.0, 1.0, 0, -128, 127), "broadcast"),
        ("q8_add", (t(2), t(2, dtype=DType.UINT8), 1.0, 0, 1.0, 0, 1.0, 1.0, 0, -128, 127),
         "dtype"),
        ("q8_clamp", (t(2), 5, 4), "5..4 is empty"),
        ("requantize", (t(2, 3), 0, t(2, dtype=I32), t(2, dtype=I32), 1, 1.0, 0, -128, 127,
                        "float"), "one for each of 3"),
        ("requantize", (t(2, 3), 0, t(2, dtype=I32), t(2, dtype=I32), None, 1.0, 0, -128, 127,
                        "float"), "one for each of 1"),
        ("requantize", (t(2, dtype=F32), 0, t(1, dtype=I32), t(1, dtype=I32), None, 1.0, 0, -128,
                        127, "float"), "does not hold"),
        ("quantize", (t(2), t(1, dtype=F32), t(1, dtype=I32), None, -128, 127, DType.INT8),
         "quantized already"),
        ("quantize", (t(2, 3, dtype=F32), t(2, dtype=F32), t(2, dtype=I32), 1, -128, 127,
                      DType.INT8), "one for each of 3"),
        ("dequantize", (t(2, dtype=F32), t(1, dtype=F32), t(1, dtype=I32), None, -128, 127),
         "does not hold codes"),
        ("q8_linear", (t(3, 4), t(5, 3), t(5, dtype=I32), 0, t(1, dtype=I32), t(1, dtype=F64),
                       t(1, dtype=I32), t(1, dtype=I32), 1.0, 0, -128, 127, "float"),
         r"want \[...,K\]"),
        ("q8_avg_pool2d", (t(1, 3, 5, 5), (3, 3), (1, 1), (2, 2), False, True, None),
         "exceeds half"),
        ("q8_avg_pool2d", (t(1, 3, 5, 5), (3, 3), (1, 1), (0, 0), False, True, 0),
         "divisor_override"),
        ("aten.max_pool2d.default", (t(1, 3, 0, 5), (1, 1), (), (0, 0), (1, 1), False),
         "empty axis"),
        ("aten.view.default", (t(2, 3), (4, -1)), "cannot be viewed"),
        ("aten.view.default", (t(2, 3), (-1, -1)), "cannot be viewed"),
        ("aten.cat.default", ((t(2, 3), t(2, 4)), 0), "differ beside axis 0"),
        ("aten.permute.default", (t(2, 3), (0, 0)), "each axis"),
        ("aten.pad.default", (t(2, 3), (1,), "constant", 0), "give pairs"),
        ("aten.pad.default", (t(2, 3), (-4, 0), "constant", 0), "crop more"),
        ("aten.slice.Tensor", (t(2, 3), 2, 0, 1, 1), "axis 2 does not exist"),
        ("aten.mm.default", (t(2, 3, dtype=F32), t(2, 3, dtype=F32)), "inner size"),
        ("aten.layer_norm.default", (t(2, 3, dtype=F32), (2,), None, None, 1e-5, True), "end in"),
    ],
)  # fmt: skip
def test_what_does_not_fit_raises_a_shape_error_that_says_so(
    op: str, args: tuple[Any, ...], told: str
) -> None:
    with pytest.raises(ShapeError, match=told):
        OPS[op].infer(*args)


def test_training_modes_and_unknown_modes_are_refused() -> None:
    x = t(1, 2, 3, 3, dtype=F32)
    vector = t(2, dtype=F32)
    with pytest.raises(UnsupportedOp, match="eval"):
        OPS["aten.dropout.default"].infer(x, 0.5, True)
    with pytest.raises(UnsupportedOp, match="eval"):
        OPS["aten.batch_norm.default"].infer(x, None, None, vector, vector, True, 0.1, 1e-5, True)
    with pytest.raises(UnsupportedOp, match="pad: mode 'fancy'"):
        OPS["aten.pad.default"].infer(x, (1, 1), "fancy", None)
    with pytest.raises(UnknownName, match="mode 'nearest'"):
        rescale(i32(1), i32(1), i32(0), None, 0, -128, 127, "nearest")


# torch as the oracle


@pytest.mark.parametrize("name", MOVERS)
def test_moving_equals_torch_on_codes_and_floats(name: str) -> None:
    for example in OPS[name].examples():
        theirs = torch_result(name, example.args)
        ours = our_result(name, example.args)
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, example.label
            assert a.tobytes() == b.tobytes(), example.label


def f(*shape: int, seed: int = 0) -> Array:
    return reals(*shape, reach=3.0, seed=seed)


CHANNELS = (f(5, seed=1), f(5, seed=2), f(5, seed=3), np.abs(f(5, seed=4)) + np.float32(0.1))
IDS = np.arange(12).reshape(3, 4)
POOLED = tuple(
    (f(2, 5, 9, 8), (3, 3), stride, padding, ceil, counted, divisor)
    for stride, padding, ceil, counted, divisor in product(
        ((), (2, 2)), ((0, 0), (1, 1)), (False, True), (False, True), (None, 7)
    )
)
FLOAT_CASES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "aten.embedding.default": (
        (f(9, 5), np.array([[0, 8, 3]]), -1, False, False),
        (f(4, 6), np.array([], np.int64), -1, False, False),
        (f(4, 6), np.array(2, np.int32), -1, False, False),
    ),
    "aten.conv1d.default": (
        (f(2, 6, 9), f(4, 3, 3), f(4), (2,), (1,), (1,), 2),
        (f(6, 9), f(4, 6, 3), None, (1,), (2,), (2,), 1),
    ),
    "aten.conv2d.default": (
        (f(2, 5, 7, 9), f(7, 5, 3, 3), f(7), (2, 1), (1, 0), (1, 2), 1),
        (f(1, 6, 7, 7), f(12, 1, 3, 3), None, (1,), (1,), (1,), 6),
        (f(6, 5, 5), f(4, 3, 1, 1), f(4), (1, 1), (0, 0), (1, 1), 2),
        (f(0, 5, 7, 7), f(7, 5, 3, 3), f(7), (1, 1), (0, 0), (1, 1), 1),
    ),
    "aten.conv1d.padding": (
        (f(2, 6, 9), f(4, 3, 4), f(4), (1,), "same", (2,), 2),
        (f(2, 6, 9), f(4, 6, 3), None, (2,), "valid", (1,), 1),
    ),
    "aten.conv2d.padding": (
        (f(2, 5, 7, 9), f(7, 5, 3, 4), f(7), (1, 1), "same", (1, 2), 1),
        (f(1, 6, 7, 7), f(12, 1, 2, 2), None, (1, 1), "same", (1, 1), 6),
        (f(5, 7, 7), f(7, 5, 3, 3), f(7), (2, 2), "valid", (1, 1), 1),
    ),
    "aten.linear.default": (
        (f(5, 7), f(3, 7), f(3)), (f(7), f(3, 7), None), (f(2, 5, 7), f(3, 7), f(3)),
        (f(0, 7), f(3, 7), f(3)),
    ),
    "aten.addmm.default": ((f(3), f(5, 7), f(7, 3), 1, 1), (f(5, 3), f(5, 7), f(7, 3), 0.5, 2)),
    "aten.mm.default": ((f(5, 7), f(7, 3)),),
    "aten.bmm.default": ((f(2, 5, 7), f(2, 7, 3)),),
    "aten.matmul.default": (
        (f(5, 7), f(7, 3)), (f(7), f(7, 3)), (f(5, 7), f(7)), (f(7), f(7)),
        (f(2, 1, 5, 7), f(3, 7, 2)),
    ),
    "aten.batch_norm.default": (
        (f(2, 5, 7, 3), *CHANNELS, False, 0.1, 1e-3, True),
        (f(2, 5), None, None, *CHANNELS[2:], False, 0.1, 1e-5, False),
    ),
    "aten.relu.default": ((f(5, 7),), (np.array([np.nan, -1, -0.0, np.inf], np.float32),)),
    "aten.relu6.default": ((f(5, 7) * np.float32(9),),),
    "aten.hardtanh.default": ((f(5, 7), -1.0, 1.0), (f(5, 7), 0, 2)),
    "aten.clamp.default": ((f(5, 7), -1.0, None), (f(5, 7), None, 1), (f(5, 7), 0.5, 1.0)),
    "aten.clamp_min.default": ((f(5, 7), 0.5),),
    "aten.clamp_max.default": ((f(5, 7), 0.5),),
    "aten.add.Tensor": ((f(5, 7), f(7), 1), (f(5, 7), f(5, 1), 2.5), (IDS, IDS, 2),
                        (f(3, 4), IDS, 1)),
    "aten.sub.Tensor": ((f(5, 7), f(7), 1), (f(5, 7), f(5, 1), 0.5)),
    "aten.mul.Tensor": ((f(5, 7), f(1, 7)), (IDS, IDS), (IDS, f(3, 4))),
    "aten.div.Tensor": ((f(5, 7), np.abs(f(7)) + np.float32(1)), (IDS, IDS + 1),
                        (f(5, 7), np.zeros(7, np.float32))),
    "aten.mean.dim": ((f(2, 5, 7, 3), (2, 3), True, None), (f(5, 7), (-1,), False, None),
                      (f(5, 7), None, False, None), (f(5, 7), (), True, None)),
    "aten.avg_pool1d.default": tuple((x[0][0], (3,), x[2][:1], x[3][:1], *x[4:6])
                                     for x in POOLED[::2]),
    "aten.avg_pool2d.default": POOLED,
    "aten.adaptive_avg_pool1d.default": ((f(2, 5, 9), (4,)), (f(5, 9), (1,))),
    "aten.adaptive_avg_pool2d.default": ((f(2, 5, 9, 8), (4, 3)), (f(5, 7, 7), (1, 1)),
                                         (f(1, 5, 2, 3), (5, 7))),
    "aten.max_pool1d.default": ((f(2, 5, 9), (3,), (2,), (1,), (1,), True),
                                (f(5, 9), (2,), (), (0,), (2,), False)),
    "aten.max_pool2d.default": (
        (f(5, 9, 8), (3, 2), (), (1, 1), (1, 1), False),
        (np.where(f(2, 5, 9, 8) > 2.5, np.float32(np.nan), f(2, 5, 9, 8)), (3, 3), (2, 2), (1, 1),
         (1, 1), True),
        (f(1, 1, 2, 2), (2, 2), (1, 1), (1, 1), (3, 3), False),
    ),
    "aten.softmax.int": ((f(5, 7), 1, None), (f(5, 7), 0, None), (f(2, 5, 7) * np.float32(40), -1,
                                                                  None), (f(0, 7), 1, None)),
    "aten.sigmoid.default": ((f(5, 7) * np.float32(50),),),
    "aten.tanh.default": ((f(5, 7),),),
    "aten.silu.default": ((f(5, 7) * np.float32(9),),),
    "aten.gelu.default": ((f(5, 7), "none"), (f(5, 7), "tanh")),
    "aten.layer_norm.default": (
        (f(2, 5, 7), (7,), f(7, seed=1), f(7, seed=2), 1e-5, True),
        (f(2, 5, 7), (5, 7), None, None, 1e-5, True),
    ),
    "aten.split.Tensor": ((f(5, 7), 2, 0), (f(5, 7), 3, -1), (f(5, 7), 9, 1)),
    "aten.split_with_sizes.default": ((f(5, 7), (2, 3), 0),),
    "aten.chunk.default": ((f(5, 7), 3, 0), (f(5, 7), 2, -1), (f(5, 7), 9, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOAT_CASES)
def test_float_ops_equal_torch_up_to_the_order_of_sums(name: str) -> None:
    for args in FLOAT_CASES[name]:
        theirs, ours = torch_result(name, args), our_result(name, args)
        types = types_of(OPS[name], Example("", args))
        for a, b, kind in zip(ours, theirs, types, strict=True):
            assert a.dtype == b.dtype == kind.dtype.value and a.shape == b.shape == kind.sizes
            # Sums of some dozens of float32 terms, added in another order.
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_every_torch_op_has_an_oracle_here() -> None:
    lacking = set(ATEN) - set(MOVERS) - set(FLOAT_CASES)
    assert lacking == {n for n in ATEN if n.startswith("quantized_decomposed.")}


SCALES = ((0.1, 3), (0.037, -128), (1.0, 0), (2.5, 127))


@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.INT16])
@pytest.mark.parametrize(("scale", "zero"), SCALES)
def test_per_tensor_quantize_and_dequantize_equal_torch(
    dtype: DType, scale: float, zero: int
) -> None:
    low, high = (-128, 127) if dtype is not DType.UINT8 else (0, 255)
    zero = max(zero, low)
    x = np.append(reals(7, 33) * np.float32(scale), np.float32([np.inf, -np.inf, 3e38]))
    args = (x, scale, zero, low, high, dtype)
    name = "quantized_decomposed.quantize_per_tensor.default"
    (ours,), (theirs,) = our_result(name, args), torch_result(name, args)
    assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    back = "quantized_decomposed.dequantize_per_tensor.default"
    args = (ours, scale, zero, low, high, dtype, None)
    assert our_result(back, args)[0].tobytes() == torch_result(back, args)[0].tobytes()
    # Our own ops say the same, with the scale rounded to float32 at the door.
    vectors = (np.float32([scale]), i32(zero), None, low, high)
    assert np.array_equal(OPS["quantize"].reference(x, *vectors, dtype), theirs)
    assert np.array_equal(OPS["dequantize"].reference(ours, *vectors), our_result(back, args)[0])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_per_channel_quantize_and_dequantize_equal_torch(axis: int, kind: type) -> None:
    x = reals(5, 7, 3)
    n = x.shape[axis]
    scales, zeros = (np.arange(n) * 0.03 + 0.05).astype(kind), np.arange(n) * 3 - 9
    args = (x, scales, zeros, axis, -128, 127, DType.INT8)
    name = "quantized_decomposed.quantize_per_channel.default"
    (ours,), (theirs,) = our_result(name, args), torch_result(name, args)
    assert np.array_equal(ours, theirs)
    back = "quantized_decomposed.dequantize_per_channel.default"
    for z in (zeros, None):
        given = (ours, scales, z, axis, -128, 127, DType.INT8, None)
        assert our_result(back, given)[0].tobytes() == torch_result(back, given)[0].tobytes()
    if kind is np.float32:
        mine = OPS["quantize"].reference(x, scales, zeros.astype(np.int32), *args[3:])
        assert np.array_equal(mine, theirs)


def test_quantize_defines_what_torch_leaves_open() -> None:
    name = "quantized_decomposed.quantize_per_tensor.default"
    odd = np.array([np.nan, 1e12, -1e12], np.float32)
    (codes_,) = our_result(name, (odd, 1e-3, 0, -(2**31), 2**31 - 1, DType.INT32))
    assert codes_.tolist() == [0, 2**31 - 1, -(2**31)]
    assert our_result(name, (odd, 1e-3, 7, -128, 127, DType.INT8))[0].tolist() == [7, 127, -128]


# sums


def torch_conv(args: tuple[Any, ...], spatial: int) -> Array:
    """The sums of a q8_conv in torch's float64, exact below 2^53, modulo 2^32."""
    x, w, bias, stride, padding, dilation, groups, x_zero, w_zero = args[:9]
    real_x = torch.from_numpy(x.astype(np.float64) - x_zero)
    real_w = torch.from_numpy(w.astype(np.float64) - w_zero.reshape(-1, *[1] * (spatial + 1)))
    compute = functional.conv2d if spatial == 2 else functional.conv1d
    b = torch.from_numpy(bias.astype(np.float64))
    total = compute(real_x, real_w, b, stride, padding, dilation, groups).numpy()
    return ((total.astype(np.int64) + 2**31) % 2**32 - 2**31).astype(np.int32)


def float_mode(acc: Array, args: tuple[Any, ...], axis: int) -> Array:
    """Mode 'float' written out a second time, from the real factor."""
    multiplier, shift, _, zero, low, high, _ = args
    shape = [1] * acc.ndim
    shape[axis] = -1
    r = (multiplier.astype(np.float64) * 2.0 ** (shift.astype(np.float64) - 31)).astype(np.float32)
    steps = np.rint(acc.astype(np.float32) * (r.reshape(shape) if r.size > 1 else r))
    return np.clip(steps, low - zero, high - zero).astype(np.int64) + zero


@pytest.mark.parametrize(("name", "spatial"), [("q8_conv2d", 2), ("q8_conv1d", 1)])
def test_convolutions_of_codes_equal_torchs_float64(name: str, spatial: int) -> None:
    for example in OPS[name].examples():
        if example.args[-1] == "float":
            acc = torch_conv(example.args, spatial)
            wanted = float_mode(acc, example.args[-7:], 1)
            assert np.array_equal(OPS[name].reference(*example.args), wanted), example.label


def test_linear_of_codes_equals_exact_integers() -> None:
    for example in OPS["q8_linear"].examples():
        x, w, bias, x_zero, w_zero, *_ = example.args
        exact = (x.astype(np.int64) - x_zero) @ (
            w.astype(np.int64) - w_zero.reshape(-1, 1)
        ).T + bias
        assert np.array_equal(linear.accumulate(x, w, bias, x_zero, w_zero), exact)
        if example.args[-1] == "float":
            wanted = float_mode(wrap(exact), example.args[-7:], exact.ndim - 1)
            assert np.array_equal(OPS["q8_linear"].reference(*example.args), wanted), example.label


def test_g7_padding_is_real_zero_so_borders_do_not_show() -> None:
    x = np.full((1, 1, 4, 4), -5, np.int8)
    ones = np.ones((1, 1, 3, 3), np.int8)
    acc = conv.accumulate(x, ones, i32(0), (1, 1), (1, 1), (1, 1), 1, -5, i32(0))
    assert acc.shape == (1, 1, 4, 4) and not acc.any()


@pytest.mark.parametrize("x_zero", [-128, -5, 0, 127])
@pytest.mark.parametrize("groups", [1, 3])
def test_real_zero_gives_the_bias_everywhere(x_zero: int, groups: int) -> None:
    x = np.full((1, 3, 5, 5), x_zero, np.int8)
    w, bias = codes(6, 3 // groups, 3, 3), np.arange(6, dtype=np.int32)
    acc = conv.accumulate(x, w, bias, (1, 1), (2, 2), (1, 1), groups, x_zero, i32(4))
    assert np.array_equal(acc, np.broadcast_to(bias[:, None, None], acc.shape))


def test_sums_wrap_modulo_2_to_the_32() -> None:
    assert wrap(np.array([2**31, -(2**31) - 1, 2**32 + 5])).tolist() == [-(2**31), 2**31 - 1, 5]
    x, w = np.full((1, 2), 127, np.int8), np.full((1, 2), 127, np.int8)
    acc = linear.accumulate(x, w, i32(2**31 - 1), 0, i32(0))
    assert acc.tolist() == [[2 * 127 * 127 + 2**31 - 1 - 2**32]]


def test_long_sums_are_exact() -> None:
    x, w = np.full((1, 60000), -128, np.int8), np.full((1, 60000), -127, np.int8)
    assert linear.accumulate(x, w, i32(1), 127, i32(0))[0, 0] == 60000 * 255 * 127 + 1


# requantize


def test_g6_one_rounding_gives_11_and_two_give_12() -> None:
    args = (i32(7984), i32(1583594044), i32(-9), None, 0, -128, 127)
    assert rescale(*args, "fixed").tolist() == [11]
    assert rescale(*args, "fixed_double").tolist() == [12]
    assert rescale(*args, "float").tolist() == [11]


@pytest.mark.parametrize("value", [*HARD_SUMS, *(-v for v in HARD_SUMS)])
def test_a_sum_becomes_float32_once_to_nearest_even(value: int) -> None:
    wanted = {2**24 + 1: 2**24, 2**25 + 2: 2**25, 2**31 - 1: 2**31}[abs(value)]
    one = multiplier_shift(np.float32([1.0]))
    y = rescale(i32(value), *one, None, 0, -(2**31), 2**31, "float")
    assert y.tolist() == [wanted if value > 0 else -wanted]


def exact_fixed(acc: int, multiplier: int, shift: int) -> int:
    """floor(acc * multiplier / 2^s + 1/2) in Python's integers."""
    s = 31 - shift
    return (2 * acc * multiplier + 2**s) // 2 ** (s + 1)


def exact_fixed_double(acc: int, multiplier: int, shift: int) -> int:
    """The two roundings of gemmlowp in Python's integers."""
    a = max(-(2**31), min(2**31 - 1, acc * 2 ** max(shift, 0)))
    total = a * multiplier
    total += 2**30 if total >= 0 else 1 - 2**30
    v = abs(total) // 2**31 * (1 if total >= 0 else -1)
    n = max(-shift, 0)
    if n >= 32:
        return 0
    # Half away from zero: the nearest integer, ties up for v >= 0 and down below.
    return (
        floor((2 * v + 2**n) / 2 ** (n + 1)) if v >= 0 else -floor((-2 * v + 2**n) / 2 ** (n + 1))
    )


@pytest.mark.parametrize(
    ("mode", "exact"), [("fixed", exact_fixed), ("fixed_double", exact_fixed_double)]
)
def test_integer_modes_equal_pythons_integers(
    mode: str, exact: Callable[[int, int, int], int]
) -> None:
    rng = np.random.default_rng(5)
    hard = [*HARD_SUMS, *(-v for v in HARD_SUMS), -(2**31), 0, 1, -1, 7984]
    for shift in (30, 7, 1, 0, -1, -2, -9, -20, -30, -31, -32, -33, -60, -125):
        for multiplier in (2**30, 2**31 - 1, 1583594044, int(rng.integers(2**30, 2**31)), 0):
            drawn = rng.integers(-(2**31), 2**31, 40) >> rng.integers(0, 31, 40)
            acc = np.append(drawn, hard).astype(np.int32)
            got = rescale(acc, i32(multiplier), i32(shift), None, 0, -(2**62), 2**62, mode)
            assert got.tolist() == [exact(a, multiplier, shift) for a in acc.tolist()], shift


def test_fixed_double_rounds_ties_away_from_zero_and_fixed_rounds_them_up() -> None:
    half = multiplier_shift(np.float32([0.5]))
    quarter = multiplier_shift(np.float32([0.25]))
    acc = i32(-6, -3, -1, 1, 3, 6)
    assert rescale(acc, *half, None, 0, -9, 9, "fixed").tolist() == [-3, -1, 0, 1, 2, 3]
    assert rescale(acc, *half, None, 0, -9, 9, "float").tolist() == [-3, -2, 0, 0, 2, 3]
    assert rescale(acc * 2, *quarter, None, 0, -9, 9, "fixed_double").tolist() == [
        -3, -2, -1, 1, 2, 3,
    ]  # fmt: skip


def test_a_left_shift_saturates_in_fixed_double() -> None:
    args = (i32(2**20, -(2**20)), i32(2**30), i32(30), None, 0, -(2**40), 2**40)
    assert rescale(*args, "fixed_double").tolist() == [2**30, -(2**30)]


def test_a_shift_that_fixed_cannot_do_is_refused() -> None:
    with pytest.raises(QParamError, match="shift 31 is above 30"):
        rescale(i32(1), i32(2**30), i32(31), None, 0, -128, 127, "fixed")


@pytest.mark.parametrize("mode", MODES)
def test_codes_stay_in_their_range_even_where_it_leaves_out_the_zero_point(mode: str) -> None:
    tiny = multiplier_shift(np.float32([2.0**-70]))
    y = rescale(sums(33), *tiny, None, -20, 5, 100, mode)
    assert set(y.tolist()) == {5}


@pytest.mark.parametrize("mode", MODES)
def test_each_channel_has_its_own_factor(mode: str) -> None:
    acc, (m, s) = sums(3, 5, 4), factors(5, 1e-7)
    whole = rescale(acc, m, s, 1, 3, -128, 127, mode)
    for o in range(5):
        one = rescale(acc[:, o], m[o : o + 1], s[o : o + 1], None, 3, -128, 127, mode)
        assert np.array_equal(whole[:, o], one)


def test_requantize_to_the_same_scale_changes_nothing() -> None:
    x = codes(7, 33)
    for mode in MODES:
        same = multiplier_shift(np.float32([1.0]))
        y = requantize(x, 9, *same, None, 0.1, 9, -128, 127, mode)
        assert np.array_equal(y, x)


@pytest.mark.parametrize(
    ("dtype", "wanted"), [("int8", "int8"), ("uint8", "uint8"), ("int32", "int8")]
)
def test_codes_keep_their_dtype_and_int32_becomes_int8(dtype: str, wanted: str) -> None:
    one = multiplier_shift(np.float32([1.0]))
    args = (np.zeros(3, dtype), 0, *one, None, 0.1, 0, *qrange("int8"), "float")
    assert requantize(*args).dtype.name == wanted
    assert types_of(OPS["requantize"], Example("", args))[0].dtype == wanted


# add and pools


def test_add_is_two_float32_products_and_one_sum() -> None:
    for example in OPS["q8_add"].examples():
        a, b, a_scale, a_zero, b_scale, b_zero, alpha, y_scale, y_zero, low, high = example.args
        ra, rb = np.float32(a_scale / y_scale), np.float32(alpha * b_scale / y_scale)
        ra, rb = (np.float32(0) if r < 2.0**-126 else r for r in (ra, rb))
        p = (a.astype(np.float32) - np.float32(a_zero)) * ra
        q = (b.astype(np.float32) - np.float32(b_zero)) * rb
        wanted = np.clip(np.rint(p + q), low - y_zero, high - y_zero) + y_zero
        assert np.array_equal(q8_add(*example.args), wanted), example.label


def test_add_is_near_the_real_sum() -> None:
    a, b = QParams.of(0.1, 3), QParams.of(0.037, -8)
    x, y = codes(33, 7), codes(33, 7, seed=1)
    got = q8_add(x, y, 0.1, 3, 0.037, -8, 1.0, 0.2, -5, -128, 127)
    real = a.dequantize(x).astype(np.float64) + b.dequantize(y)
    assert np.abs((got.astype(np.float64) + 5) * 0.2 - real).max() <= 0.1 + 1e-5


@pytest.mark.parametrize("alpha", [-1.0, float("nan"), float("inf")])
def test_add_refuses_an_alpha_below_zero_or_not_finite(alpha: float) -> None:
    with pytest.raises(QParamError, match="alpha"):
        OPS["q8_add"].infer(t(2), t(2), 1.0, 0, 1.0, 0, alpha, 1.0, 0, -128, 127)


def test_add_refuses_scales_too_far_apart() -> None:
    with pytest.raises(QParamError, match="reaches 2\\^30"):
        q8_add(codes(3), codes(3), 2.0**40, 0, 1.0, 0, 1.0, 1.0, 0, -128, 127)


def counted_average(x: Array, args: tuple[Any, ...]) -> Array:
    """q8_avg_pool2d cell by cell; counts as torch's documentation words them."""
    (Kh, Kw), stride, (ph, pw), ceil, counted, override, x_scale, x_zero, y_scale, zero, *rest = (
        args
    )
    low, high = rest
    sh, sw = stride or (Kh, Kw)
    N, C, H, W = x.shape
    blank = torch.zeros(1, 1, H, W)
    shape = functional.avg_pool2d(blank, (Kh, Kw), (sh, sw), (ph, pw), ceil).shape[2:]
    y = np.zeros((N, C, *shape), np.int64)
    for i, j in product(*map(range, shape)):
        rows = range(i * sh - ph, min(i * sh - ph + Kh, H + ph))
        columns = range(j * sw - pw, min(j * sw - pw + Kw, W + pw))
        inside = [(r, c) for r, c in product(rows, columns) if 0 <= r < H and 0 <= c < W]
        count = override or (len(rows) * len(columns) if counted else len(inside))
        total = sum(x[:, :, r, c].astype(np.int64) - x_zero for r, c in inside)
        steps = np.rint(np.asarray(total, np.float32) * np.float32(x_scale / (y_scale * count)))
        y[:, :, i, j] = np.clip(steps, low - zero, high - zero).astype(np.int64) + zero
    return y


def test_average_pool_counts_each_window_by_the_contract() -> None:
    for example in OPS["q8_avg_pool2d"].examples():
        x, *args = example.args
        wanted = counted_average(x, tuple(args))
        assert np.array_equal(OPS["q8_avg_pool2d"].reference(x, *args), wanted), example.label


def test_average_pools_of_codes_are_within_half_a_step_of_torch() -> None:
    for name in ("q8_avg_pool2d", "q8_adaptive_avg_pool2d"):
        for example in OPS[name].examples():
            x, *args = example.args
            *geometry, x_scale, x_zero, y_scale, y_zero, low, high = args
            theirs = "aten." + name.removeprefix("q8_") + ".default"
            if not x.size:
                continue  # torch takes no tensor without channels; shapes are compared elsewhere
            real = (x.astype(np.float64) - x_zero) * x_scale
            (mean,) = torch_result(theirs, (real, *geometry))
            wanted = np.clip(mean / y_scale + y_zero, low, high)
            got = OPS[name].reference(*example.args).astype(np.float64)
            assert np.abs(got - wanted).max() <= 0.5 + 1e-4, example.label


def test_max_pool_ignores_padding_even_at_the_lowest_code() -> None:
    x = np.full((1, 1, 3, 3), -128, np.int8)
    y = OPS["aten.max_pool2d.default"].reference(x, (3, 3), (), (1, 1), (1, 1), False)
    assert y.tolist() == [[[[-128]]]]


# qparams of results


def test_qparams_follow_codes_through_the_graph() -> None:
    b = Builder()
    x = b.input("x", 1, 4, 5, 5)
    q = b.op(
        "q", "quantize",
        (x, b.const("s", np.float32([0.1])), b.const("z", i32(3)), None, -128, 127, DType.INT8),
        t(1, 4, 5, 5),
    )  # fmt: skip
    moved = b.op("moved", "aten.permute.default", (q, (0, 2, 3, 1)), t(1, 5, 5, 4))
    both = b.op("both", "aten.cat.default", ((moved, moved), 0), t(2, 5, 5, 4))
    added = b.op("added", "q8_add", (both, both, 0.1, 3, 0.1, 3, 1.0, 0.2, -9, 4, 127),
                 t(2, 5, 5, 4))  # fmt: skip
    real = b.op("real", "aten.opaque.default", (added,), tensor(2, 5, 5, 4))
    found = tensor_qparams(b.graph(real))
    assert found["x"] is None and found["real"] is None
    assert found["q"] == found["moved"] == found["both"] == QParams.of(0.1, 3)
    # The fused range 4..127 leaves out the zero point; what the codes mean must hold it.
    assert found["added"] == QParams.of(0.2, -9, -9, 127)


@pytest.mark.parametrize(
    ("op", "scale", "zero"),
    [
        ("q8_conv2d", 0.1, 3), ("q8_conv1d", 0.1, 3), ("q8_linear", 0.1, 3), ("q8_add", 0.2, -5),
        ("q8_matmul", 0.1, 3),
        ("q8_avg_pool2d", 0.08, -5), ("q8_adaptive_avg_pool2d", 0.05, -5), ("quantize", 0.1, 3),
        ("requantize", 0.05, -3),
    ],
)  # fmt: skip
def test_ops_that_own_their_qparams_state_them(op: str, scale: float, zero: int) -> None:
    graph, _ = one_node(OPS[op], next(OPS[op].examples()))
    assert tensor_qparams(graph)["y"] == QParams.of(scale, zero)


@pytest.mark.parametrize("op", ["dequantize", "aten.conv2d.default", "aten.add.Tensor"])
def test_real_results_have_no_qparams(op: str) -> None:
    given = (QParams.of(0.1, 3),) * 2 + (None,) * (len(OPS[op].schema) - 2)
    assert OPS[op].qparams(*given) is None


@pytest.mark.parametrize("op", MOVERS)
def test_movers_share_the_qparams_of_their_input(op: str) -> None:
    x = QParams.of(0.1, 3)
    first: Any = (x, x) if op == "aten.cat.default" else x
    assert OPS[op].qparams(first, *(0 for _ in OPS[op].schema[1:])) == x


def test_per_channel_qparams_do_not_outlive_a_move_of_axes() -> None:
    x = QParams.of([0.1, 0.2], axis=1)
    assert OPS["aten.permute.default"].qparams(x, (1, 0)) is None
    assert OPS["aten.clone.default"].qparams(x, None) == x


# examples as graphs, backends by name


def test_an_example_becomes_a_graph_of_one_node() -> None:
    x = codes(1, 2, 3)
    graph, inputs = one_node(OPS["aten.cat.default"], Example("", ((x, x), 1)))
    assert graph.inputs == ("tensors_0", "tensors_1") and set(inputs) == set(graph.inputs)
    assert graph["y"].type == t(1, 4, 3)
    conv_graph, inputs = one_node(OPS["q8_conv2d"], next(OPS["q8_conv2d"].examples()))
    assert conv_graph.inputs == ("x",)
    assert set(conv_graph.constants) == set(OPS["q8_conv2d"].constants)


def test_an_unknown_backend_is_told_the_names_there_are() -> None:
    with pytest.raises(UnknownName, match="'cuda'; choose one of reference, numba, vulkan"):
        backends.kernels("cuda")
    with pytest.raises(UnknownName, match="runs on the CPU alone"):
        backends.no_choice("numba", 0)


def test_the_reference_runs_every_op() -> None:
    table = backends.kernels("reference")
    assert set(table) == set(OPS)
    assert all(len(ks) == 1 and ks[0].name == "reference" for ks in table.values())
    assert "NumPy" in backends.device("reference")


def test_ratios_of_pools_are_rounded_once() -> None:
    counts = np.array([[9, 6], [6, 4]])
    got = ratio(0.1, np.float64(0.3) * counts)
    assert np.array_equal(got, (0.1 / (0.3 * counts)).astype(np.float32))
