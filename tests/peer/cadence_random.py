"""Random arguments to upstream's kernels and to ours; prints {op: [trials, greatest difference]}.

Run by tests/test_cadence_peer.py, in a process of its own.
"""

import json
from collections.abc import Iterator
from typing import Any

import torch
from executorch.backends.cadence.aot import (
    ops_registrations,  # noqa: F401
    ref_implementations,  # noqa: F401
)

from qtoolkit.interop.cadence import ADDED_SCHEMAS, KERNELS

SEEDS = 10
Trial = tuple[str, tuple[Any, ...]]
CODES = {"8s": torch.int8, "8u": torch.uint8, "16s": torch.int16, "16u": torch.uint16}


def codes(*shape: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    return torch.randint(limits.min, limits.max + 1, shape).to(dtype)


def convolutions() -> Iterator[Trial]:
    for name in KERNELS:
        if not name.startswith("quantized_") or "conv" not in name or name in ADDED_SCHEMAS:
            continue
        if "w8a32" in name:
            continue
        dtype = torch.uint8 if "asym8u" in name else torch.int8
        spatial, depthwise = (1 if "1d" in name else 2), "depthwise" in name
        C = 5 if depthwise else 3
        x = codes(2, C, *(7, 6)[:spatial], dtype=dtype)
        w = codes(5, 1 if depthwise else C, *(3, 2)[:spatial], dtype=dtype)
        if "nlc" in name or "nhwc" in name:
            x = x.movedim(1, -1)
            # Upstream's depthwise conv1d takes [O,K,1], its conv2d [Kh,Kw,O].
            flat = depthwise and spatial == 2
            w = w.squeeze(1).movedim(0, -1) if flat else w.movedim(1, -1)
        sizes = ([2] * spatial, [1] * spatial, [1] * spatial, 5 if depthwise else 1)
        bias = torch.randint(-4000, 4000, (5,), dtype=torch.int32)
        ints = "." in name or name == "quantized_conv2d_depthwise_nhwc"
        qparams: list[Any] = [4, 3e-4, 2**30, -3]
        if not ints:
            qparams = [torch.tensor([value]) for value in qparams]
        zero, scale, multiplier, shift = qparams
        yield name, (x, w, bias, *sizes, 3, zero, scale, 0.05, 11, multiplier, shift)


def linears() -> Iterator[Trial]:
    for name in ("quantized_linear", "quantized_fully_connected"):
        bias = torch.randint(-4000, 4000, (5,), dtype=torch.int32)
        args = (codes(1, 4, 7), codes(5, 7), bias, 5)
        yield f"{name}.per_tensor", (*args, -4, -1099511680, -7, 11, None)
        vectors = [torch.tensor([v], dtype=torch.int32) for v in (-4, 1690499072, -8)]
        yield name, (*args, *vectors, 11, None)
    yield "quantized_matmul", (codes(2, 3, 7), 3, codes(2, 7, 5), -7, None, 1717986944, -9, 4)


def elementwise() -> Iterator[Trial]:
    a, b = codes(2, 4, 6), codes(2, 4, 6)
    for name in ("quantized_add.per_tensor", "quantized_mul.per_tensor"):
        yield name, (a, 0.037, 3, b, 0.021, -7, 0.06, 5)
    yield "quantized_relu.per_tensor", (a, 3, -128, -1717986944, -1)
    yield "requantize.per_tensor", (a, 0.037, 3, 0.05, -4, torch.uint8)
    norm = (a, 0.037, 3, [6], torch.rand(6), torch.rand(6), 1e-5, 0.03, 2)
    yield "quantized_layer_norm.per_tensor", norm
    softmax = (a, None, 1, 0, torch.zeros(1), 0.037, 3, 0.0039, -128)
    yield "quantized_softmax.per_tensor", softmax
    for kind, dtype in CODES.items():
        limits = torch.iinfo(dtype)
        args = (0.02, 3, limits.min, limits.max, dtype)
        yield f"quantize_per_tensor_asym{kind}", (torch.randn(33), *args)
        yield f"dequantize_per_tensor_asym{kind}", (codes(33, dtype=dtype), *args)


def windows() -> Iterator[Trial]:
    x = codes(2, 4, 6, 5)
    zero = torch.tensor([5], dtype=torch.int32)
    each = torch.tensor([5, -3], dtype=torch.int32)
    for last in (False, True):
        yield "im2row", (x, (3, 2), (1, 2), (1, 0), (2, 1), each, last)
        yield "im2row.per_tensor", (x, (3, 2), (1, 2), (1, 0), (2, 1), 5, last)
        for stride, padding, dilation, out in (
            ((1, 1), (0, 0), (1, 1), (0, 0)),
            ((2, 2), (1, 0), (1, 1), (1, 0)),
            ((2, 1), (1, 1), (2, 1), (1, 0)),
            ((3, 2), (0, 0), (1, 2), (2, 1)),
        ):
            yield "transposed_im2row", (x, (2, 2), dilation, padding, stride, out, zero, last)
    yield "quantized_max_pool2d_nchw", (x, [2, 2], [2, 2], [1, 1], [1, 1], False)
    yield "quantized_max_pool2d_nhwc", (x, [2, 2], [2, 2], [1, 1], [1, 1], True)
    yield "avg_pool2d", (x, (3, 2), (2, 1), (1, 1), False, True, None, zero, False)


def reals() -> Iterator[Trial]:
    x, bias = torch.randn(2, 4, 6, 5), torch.randn(3)
    weight, sizes = torch.randn(3, 4, 2, 2), ((2, 2), (1, 0), (1, 1), (1, 0), 1)
    yield "transposed_convolution", (x, weight, bias, *sizes, False)
    x3, w3 = torch.randn(1, 2, 4, 4, 4), torch.randn(3, 2, 2, 2, 2)
    yield "conv3d", (x3, w3, bias, [1] * 3, [0] * 3, [1] * 3, 1)
    yield "fully_connected", (torch.randn(3, 4), torch.randn(5, 4), None)
    yield "rope", (torch.randn(1, 3, 2, 8), *torch.randn(2, 5, 4), torch.tensor([4, 0, 2]))


def main() -> None:
    told: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        for family in (convolutions, linears, elementwise, windows, reals):
            for name, args in family():
                op, _, overload = name.partition(".")
                theirs = getattr(getattr(torch.ops.cadence, op), overload or "default")(*args)
                ours = KERNELS[name](*args)
                assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, name
                apart = float((ours.double() - theirs.double()).abs().max())
                trials, most = told.get(name, [0, 0.0])
                told[name] = [trials + 1, max(most, apart)]
    print(json.dumps(told))  # noqa: T201


main()
