"""Cadence's kernels: a scale for each channel, the schemas' arguments, nothing registered."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from qtoolkit.errors import QParamError, ShapeError  # noqa: E402
from qtoolkit.interop.cadence import ADDED_SCHEMAS, KERNELS  # noqa: E402

SCHEMAS: dict[str, str] = json.loads(
    (Path(__file__).parent / "peer" / "cadence_schemas.json").read_text()
)
HALF = 2**30  # 0.5 as a Q0.31 multiplier
PER_CHANNEL_CONVS = [name for name in KERNELS if "conv" in name and "out_shift" in (
    inspect.signature(KERNELS[name]).parameters) and "." not in name]  # fmt: skip
PER_CHANNEL_LINEARS = ["quantized_linear", "quantized_fully_connected"]


def random_codes(seed: int, *shape: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)


def conv_case(op: str, O: int = 5) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """A conv's arguments, one element per channel, and what brings its output to channels first."""
    last = "nlc" in op or "nhwc" in op
    spatial = 1 if "1d" in op else 2
    depthwise = "depthwise" in op
    size = (7, 6)[:spatial]
    C = O if depthwise else 3
    x = random_codes(1, 2, C, *size)
    w = random_codes(2, O, 1 if depthwise else C, *(3, 2)[:spatial])
    if last:
        x = x.movedim(1, -1)
        w = w.squeeze(1).movedim(0, -1) if depthwise else w.movedim(1, -1)
    args = {
        "input": x,
        "weight": w,
        "bias": torch.tensor([100, -2000, 3000, 0, 41], dtype=torch.int32)[:O],
        "stride": [2] * spatial,
        "padding": [1] * spatial,
        "dilation": [1] * spatial,
        "groups": O if depthwise else 1,
        "input_zero_point": -3,
        "weight_zero_point": torch.tensor([0, 4, -7, 1, 0], dtype=torch.int32)[:O],
        "bias_scale": torch.tensor([1e-3, 3e-4, 2e-4, 5e-3, 1e-4])[:O],
        "out_scale": 0.05,
        "out_zero_point": 11,
        "out_multiplier": torch.full((O,), HALF, dtype=torch.int32),
        "out_shift": torch.zeros(O, dtype=torch.int32),
    }
    return args, (lambda y: y.movedim(-1, 1)) if last else (lambda y: y)


def conv_oracle(op: str, args: dict[str, Any]) -> Any:
    """float64 codes before rounding and clamping, by loops over windows, channels first."""
    x, w = args["input"].double().numpy(), args["weight"].double().numpy()
    if "nlc" in op or "nhwc" in op:
        x = np.moveaxis(x, -1, 1)
        w = np.moveaxis(w, -1, 0)[:, None] if w.ndim < x.ndim else np.moveaxis(w, -1, 1)
    if x.ndim == 3:
        x, w = x[:, :, None], w[:, :, None]
    O, per_group, Kh, Kw = w.shape
    (sh, sw), (ph, pw) = ([1, *args[k]][-2:] if k == "stride" else [0, *args[k]][-2:]
                          for k in ("stride", "padding"))  # fmt: skip
    x = np.pad(x - args["input_zero_point"], ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    H, W = (x.shape[2] - Kh) // sh + 1, (x.shape[3] - Kw) // sw + 1
    y = np.empty((x.shape[0], O, H, W))
    for o in range(O):
        first = o // (O // args["groups"]) * per_group
        kernel = w[o] - float(args["weight_zero_point"].double()[o])
        for i in range(H):
            for j in range(W):
                seen = x[:, first : first + per_group, i * sh : i * sh + Kh, j * sw : j * sw + Kw]
                acc = (seen * kernel).sum((1, 2, 3)) + float(args["bias"][o])
                y[:, o, i, j] = acc * float(args["bias_scale"].double()[o]) / args["out_scale"]
    y += args["out_zero_point"]
    return torch.from_numpy(y[:, :, 0] if args["input"].dim() == 3 else y)


def agrees(codes: Any, exact: Any) -> bool:
    """Half a step off at most, and two float32 roundings of a code below 2^8: 2^-15."""
    return bool(((codes.double() - exact.clamp(-128, 127)).abs() <= 0.5 + 2**-15).all())


@pytest.mark.parametrize("op", PER_CHANNEL_CONVS)
def test_each_channel_of_a_conv_has_its_own_scale_and_zero_point(op: str) -> None:
    args, first = conv_case(op)
    exact = conv_oracle(op, args)
    codes = first(KERNELS[op](**args))
    assert codes.dtype == torch.int8 and codes.shape == exact.shape
    assert agrees(codes, exact)
    assert codes.unique().numel() > 20
    # An oracle with the first channel's parameters for all must not fit: the test can fail.
    for name in ("bias_scale", "weight_zero_point"):
        args[name] = args[name][:1].expand(5)
        assert not agrees(codes, conv_oracle(op, args)), name


@pytest.mark.parametrize("op", PER_CHANNEL_CONVS)
def test_a_conv_with_equal_elements_is_the_one_per_tensor(op: str) -> None:
    args, _ = conv_case(op)
    vectors = {
        "weight_zero_point": torch.full((5,), 4, dtype=torch.int32),
        "bias_scale": torch.full((5,), 3e-4),
        "out_multiplier": torch.full((5,), HALF, dtype=torch.int32),
        "out_shift": torch.full((5,), -3, dtype=torch.int32),
    }
    many = KERNELS[op](**args | vectors)
    assert torch.equal(many, KERNELS[op](**args | {k: v[:1] for k, v in vectors.items()}))
    alone = {k: v[0].item() for k, v in vectors.items()}
    per_tensor = f"{op}.per_tensor"
    assert torch.equal(many, KERNELS[per_tensor if per_tensor in KERNELS else op](**args | alone))


@pytest.mark.parametrize("op", PER_CHANNEL_CONVS)
@pytest.mark.parametrize("name", ["weight_zero_point", "bias_scale", "out_multiplier", "out_shift"])
@pytest.mark.parametrize("count", [0, 3, 6])
def test_a_vector_of_another_length_is_refused_by_a_conv(op: str, name: str, count: int) -> None:
    args, _ = conv_case(op)
    args[name] = torch.ones(count, dtype=args[name].dtype)
    told = rf"cadence::{op}: {name} has {count} elements.*give one, or one per output channel .5."
    with pytest.raises(QParamError, match=told):
        KERNELS[op](**args)


def linear_case(O: int = 5, K: int = 7) -> dict[str, Any]:
    return {
        "src": random_codes(3, 1, 4, K),
        "weight": random_codes(4, O, K),
        "bias": torch.tensor([100, -2000, 3000, 0, 41], dtype=torch.int32)[:O],
        "src_zero_point": 5,
        "weight_zero_point": torch.tensor([0, 4, -7, 1, 0], dtype=torch.int32)[:O],
        "out_multiplier": torch.tensor(
            [HALF, 1099511680, 1690499072, 2**31 - 1, 1717986944], dtype=torch.int32
        )[:O],
        "out_shift": torch.tensor([-8, -7, -6, -10, -9], dtype=torch.int32)[:O],
        "out_zero_point": 11,
        "offset": None,
    }


def linear_oracle(args: dict[str, Any], sign: int) -> Any:
    weight = args["weight"].double() - args["weight_zero_point"].double()[:, None]
    acc = (args["src"].double() - args["src_zero_point"]) @ weight.T + args["bias"].double()
    factor = args["out_multiplier"].double() * 2.0 ** (args["out_shift"].double() - 31)
    return sign * acc * factor + args["out_zero_point"]


@pytest.mark.parametrize("op", PER_CHANNEL_LINEARS)
def test_each_channel_of_a_linear_has_its_own_multiplier_and_shift(op: str) -> None:
    args = linear_case()
    codes = KERNELS[op](**args)
    assert agrees(codes, linear_oracle(args, sign=-1))
    assert codes.unique().numel() > 12
    for name in ("weight_zero_point", "out_multiplier", "out_shift"):
        flat = args | {name: args[name][1:2].expand(5)}
        assert not agrees(codes, linear_oracle(flat, sign=-1)), name


@pytest.mark.parametrize("op", PER_CHANNEL_LINEARS)
def test_a_linear_negates_what_its_compiler_means_and_a_negative_multiplier_mends_it(
    op: str,
) -> None:
    args = linear_case()
    assert not agrees(KERNELS[op](**args), linear_oracle(args, sign=1))
    mended = args | {"out_multiplier": -args["out_multiplier"]}
    assert agrees(KERNELS[op](**mended), linear_oracle(args, sign=1))


def test_the_sign_of_the_per_tensor_linear_matmul_and_relu_is_upstreams() -> None:
    """cadence_traps.json: sums 10 and 20 by 0.5 are -5 and -10, with -0.5 they are 5 and 10."""
    src = torch.tensor([[10]], dtype=torch.int8)
    weight = torch.tensor([[1], [2]], dtype=torch.int8)
    bias = torch.zeros(2, dtype=torch.int32)
    for multiplier, wanted in ((HALF, [[-5, -10]]), (-HALF, [[5, 10]])):
        linear = KERNELS["quantized_linear.per_tensor"]
        assert linear(src, weight, bias, 0, 0, multiplier, 0, 0, None).tolist() == wanted
        matmul = KERNELS["quantized_matmul"]
        assert matmul(src, 0, weight, 0, None, multiplier, 0, 0, True).tolist() == wanted
    x = torch.tensor([1, 2, 3, 4], dtype=torch.int8)
    relu = KERNELS["quantized_relu.per_tensor"]
    assert relu(x, 0, 0, HALF, 0).tolist() == [0, -1, -2, -2]
    assert relu(x, 0, 0, -HALF, 0).tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize("op", PER_CHANNEL_LINEARS)
def test_a_linear_with_equal_elements_is_the_one_per_tensor(op: str) -> None:
    args = linear_case()
    names = ("weight_zero_point", "out_multiplier", "out_shift")
    many = {k: args[k][1:2].expand(5) for k in names}
    alone = {k: args[k][1].item() for k in names}
    equal = KERNELS[f"{op}.per_tensor"](**args | alone)
    assert torch.equal(KERNELS[op](**args | many), equal)
    assert torch.equal(KERNELS[op](**args | {k: args[k][1:2] for k in names}), equal)


@pytest.mark.parametrize("op", PER_CHANNEL_LINEARS)
@pytest.mark.parametrize("name", ["weight_zero_point", "out_multiplier", "out_shift"])
@pytest.mark.parametrize("count", [0, 3, 7])
def test_a_vector_of_another_length_is_refused_by_a_linear(op: str, name: str, count: int) -> None:
    args = linear_case()
    args[name] = torch.arange(count, dtype=torch.int32)
    with pytest.raises(QParamError, match=rf"cadence::{op}: {name} has {count} elements.*\(5\)"):
        KERNELS[op](**args)


def test_as_many_equal_weight_zero_points_as_inputs_are_one() -> None:
    """As upstream's test file hands them over; unlike ones are the fault tested above."""
    args = linear_case()
    one = KERNELS["quantized_linear"](**args | {"weight_zero_point": torch.tensor([3])})
    many = KERNELS["quantized_linear"](**args | {"weight_zero_point": torch.full((7,), 3)})
    assert torch.equal(one, many)


def test_a_relu_has_no_channels_and_takes_one_element_of_each() -> None:
    x, many = torch.zeros(2, 3, dtype=torch.int8), torch.full((3,), HALF)
    with pytest.raises(QParamError, match="out_multiplier has 3 elements.*give one"):
        KERNELS["quantized_relu"](x, torch.tensor([0]), 0, many, torch.tensor([0]))


def test_the_type_in_a_name_is_asked_for() -> None:
    x = torch.zeros(1, 2, dtype=torch.uint8)
    with pytest.raises(ShapeError, match="X is torch.uint8; this op takes torch.int8"):
        KERNELS["quantized_relu_asym8s_asym8s.per_tensor"](x, 0, 0, HALF, 0)


def test_ties_go_to_even_and_codes_saturate() -> None:
    ties = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1000.0, -1000.0])
    codes = KERNELS["quantize_per_tensor"](ties, 1.0, 0, -128, 127, torch.int8)
    assert codes.tolist() == [0, 2, 2, 0, -2, 127, -128]
    most = KERNELS["quantize_per_tensor"](
        torch.tensor([1e10]), 1.0, 0, -(2**31), 2**31 - 1, torch.int32
    )
    assert most.tolist() == [2**31 - 1]


def argument_names(schema: str) -> list[str]:
    """The names of a schema's arguments, in order."""
    inside = schema[schema.index("(") + 1 : schema.index(") -> ")]
    parts = re.split(r",\s*(?![^\[]*\])", inside)
    return [p.split("=")[0].split()[-1] for p in parts if p.strip() != "*"]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_takes_the_arguments_of_its_schema_in_order_and_with_its_defaults(
    name: str,
) -> None:
    schema = ADDED_SCHEMAS.get(name) or SCHEMAS[f"cadence::{name}"]
    parameters = inspect.signature(KERNELS[name]).parameters
    assert list(parameters) == argument_names(schema)
    optional = {p.split("=")[0].split()[-1] for p in schema.split(", ") if "=" in p}
    given = {n for n, p in parameters.items() if p.default is not inspect.Parameter.empty}
    assert given == optional


def test_the_overloads_that_we_add_are_none_of_upstreams_and_have_its_conv_schema() -> None:
    assert set(ADDED_SCHEMAS) == {
        "quantized_depthwise_conv1d_ncl",
        "quantized_depthwise_conv1d_nlc",
    }
    conv = SCHEMAS["cadence::quantized_conv1d_ncl"]
    for name, schema in ADDED_SCHEMAS.items():
        assert f"cadence::{name}" not in SCHEMAS
        assert argument_names(schema) == argument_names(conv)


def test_no_key_says_default() -> None:
    assert not [name for name in KERNELS if name.endswith((".default", ".out"))]
    assert len(KERNELS) == 81


def test_importing_registers_nothing() -> None:
    code = (
        "import torch\n"
        "from qtoolkit.interop.cadence import KERNELS\n"
        "names = torch._C._dispatch_get_all_op_names()\n"
        "print(len(KERNELS), [n for n in names if n.startswith('cadence::')],\n"
        "      [n for n in KERNELS if hasattr(torch.ops.cadence, n.split('.')[0])])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split(maxsplit=1) == [str(len(KERNELS)), "[] []\n"]


def test_the_benchmark_finds_ties_apart_and_the_linear_equal_but_for_its_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import cadence_arithmetic

    monkeypatch.setattr(cadence_arithmetic, "TRIPLES", 10_000)
    monkeypatch.setattr(cadence_arithmetic, "OUT_SCALES", 10)
    found = {row["what"]: row for row in cadence_arithmetic.rows()}
    assert 25 < found["requantize factor r, in units of its last bit"]["percent"] < 45
    assert found["linear, multipliers negated"]["most"] == 0
    assert found["linear, multipliers as emitted"]["percent"] > 99
    assert all(row["most"] <= 1 for what, row in found.items() if what[:4] in ("conv", "add"))
    assert found["conv, graph in mode float"]["percent"] < 0.1
