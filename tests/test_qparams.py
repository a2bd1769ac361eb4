"""The constants that the numeric contract derives from scales and zero points."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # defines torch.ops.quantized_decomposed

from qtoolkit.errors import QParamError
from qtoolkit.qparams import (
    QParams,
    bias_codes,
    bias_scale,
    fused_range,
    inverse_scale,
    multiplier_shift,
    ratio,
    requantize_factor,
)

rng = np.random.default_rng(7)


def f32(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, np.float32)


# multiplier and shift


@pytest.mark.parametrize(
    ("r", "multiplier", "shift"),
    [
        (0.5, 1073741824, 0),
        (0.25, 1073741824, -1),
        (0.001, 1099511680, -9),
        (1.0, 1073741824, 1),
        (0.0, 0, 0),
        (3.0, 1610612736, 2),
        (2.0**-126, 1073741824, -125),
    ],
)
def test_multiplier_and_shift_are_those_of_the_contract(
    r: float, multiplier: int, shift: int
) -> None:
    m, s = multiplier_shift(f32(r))
    assert (m.tolist(), s.tolist()) == ([multiplier], [shift])
    assert m.dtype == s.dtype == np.int32


def test_the_factor_comes_back_exactly_from_multiplier_and_shift() -> None:
    r = np.exp2(rng.uniform(-126, 30, 5000)).astype(np.float32)
    edges = f32(
        0, 2.0**-126, np.nextafter(f32(1), f32(0))[0], np.nextafter(f32(2.0**30), f32(0))[0]
    )
    for values in (r, edges):
        assert np.array_equal(requantize_factor(*multiplier_shift(values)), values)


def test_a_31_bit_multiplier_is_rounded_once() -> None:
    (r,) = requantize_factor(np.array([1583594044], np.int32), np.array([-9], np.int32))
    assert r == np.float32(1583594044 * 2.0**-40)


def test_multipliers_lie_in_the_upper_half_of_q31() -> None:
    m, _ = multiplier_shift(np.exp2(rng.uniform(-126, 30, 5000)).astype(np.float32))
    assert m.min() >= 2**30


# ratios


def test_a_ratio_is_divided_in_float64_and_rounded_once() -> None:
    a, b = rng.uniform(0.001, 1, (2, 1000)).astype(np.float32)
    assert np.array_equal(
        ratio(a, b), (a.astype(np.float64) / b.astype(np.float64)).astype(np.float32)
    )


@pytest.mark.parametrize("top", [2.0**30, 2.0**31, np.inf, np.nan])
def test_a_ratio_of_2_to_the_30_or_more_is_refused_with_the_node(top: float) -> None:
    with pytest.raises(QParamError, match="%conv: the ratio of scales"):
        ratio([0.5, top], 1.0, "conv")


def test_a_ratio_just_below_the_limit_passes() -> None:
    assert ratio(2.0**30 - 64, 1.0)[0] == 2.0**30 - 64


def test_a_ratio_below_the_normal_numbers_becomes_zero() -> None:
    below = np.nextafter(2.0**-126, 0)
    # Rounded to float32 this is 2^-126 again, which is normal and stays.
    assert ratio([2.0**-127, 2.0**-126, below], 1.0).tolist() == [0, 2.0**-126, 2.0**-126]
    assert ratio(2.0**-100, 2.0**100)[0] == 0


# the domain


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 2.0**-101, 2.0**101])
def test_a_scale_outside_the_domain_is_refused_with_node_channel_and_value(scale: float) -> None:
    with pytest.raises(QParamError, match="%w: scale .* of channel 1 lies outside"):
        QParams.of([1.0, scale], axis=0, name="w")


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_the_ends_of_the_domain_are_inside(scale: float) -> None:
    assert QParams.of(scale).scale[0] == scale
    assert np.isfinite(inverse_scale(QParams.of(scale).scale)[0])


@pytest.mark.parametrize("zero", [-129, 128])
def test_a_zero_point_outside_the_code_range_is_refused(zero: int) -> None:
    with pytest.raises(QParamError, match=f"%x: zero point {zero} of channel 0 .*-128..127"):
        QParams.of(0.1, zero, name="x")


def test_vectors_of_unlike_length_are_refused() -> None:
    with pytest.raises(QParamError, match="3 scales and 2 zero points"):
        QParams.of([1, 2, 3], [0, 0], axis=0)
    with pytest.raises(QParamError, match="3 scales need an axis"):
        QParams.of([1, 2, 3])


def test_one_zero_point_stands_for_all_channels() -> None:
    assert QParams.of([1, 2, 3], 5, axis=0).zero_point.tolist() == [5, 5, 5]


def test_scales_are_rounded_to_float32_at_the_door() -> None:
    assert QParams.of(0.1).scale.dtype == np.float32
    assert QParams.of(0.1) == QParams.of(np.float32(0.1))


def test_equality_looks_at_values_range_and_axis() -> None:
    one = QParams.of(0.1, 3)
    assert one == QParams.of(0.1, 3) and hash(one) == hash(QParams.of(0.1, 3))
    for other in (QParams.of(0.2, 3), QParams.of(0.1, 4), QParams.of(0.1, 3, -127)):
        assert one != other
    assert one != "scale 0.1"


# codes


def test_g5_ties_go_to_even() -> None:
    assert QParams.of(1.0).quantize(f32(0.5, 1.5, 2.5, -0.5, -1.5)).tolist() == [0, 2, 2, 0, -2]


def test_nan_becomes_the_zero_point_and_infinities_saturate() -> None:
    q = QParams.of(0.1, 7)
    assert q.quantize(f32(np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38)).tolist() == [
        7, 7, 127, -128, 127, -128,
    ]  # fmt: skip


def test_nan_becomes_the_zero_point_of_its_channel() -> None:
    q = QParams.of([0.1, 0.2], [3, -4], axis=1)
    assert q.quantize(np.full((2, 2), np.nan, np.float32)).tolist() == [[3, -4], [3, -4]]


def test_quantize_equals_torch() -> None:
    for scale, zero in ((0.1, 0), (0.037, 7), (1.0, -128), (3.3, 127)):
        x = (rng.uniform(-200, 200, 5000) * scale).astype(np.float32)
        x[::2] = (np.round(x[::2] / scale * 2) / 2 * scale).astype(np.float32)
        theirs = torch.ops.quantized_decomposed.quantize_per_tensor(
            torch.from_numpy(x), float(np.float32(scale)), zero, -128, 127, torch.int8
        )
        assert np.array_equal(QParams.of(scale, zero).quantize(x), theirs.numpy())


def test_dequantize_inverts_quantize_on_every_code() -> None:
    codes = np.arange(-128, 128)
    for scale, zero in ((0.1, 3), (2.0**-100, -128), (2.0**100, 127)):
        q = QParams.of(scale, zero)
        real = q.dequantize(codes)
        assert real.dtype == np.float32 and real[zero + 128] == 0
        assert np.array_equal(q.quantize(real), codes)


def test_wider_floats_are_rounded_to_float32_first() -> None:
    x = np.array([0.5 + 2.0**-40])
    assert QParams.of(1.0).quantize(x)[0] == 0


# fused ranges


@pytest.mark.parametrize(
    ("bounds", "zero", "wanted"),
    [
        ((0.0, None), -128, (-128, 127)),
        ((0.0, None), 5, (5, 127)),
        ((0.0, None), 127, (127, 127)),
        ((0.0, 6.0), 0, (0, 60)),
        ((0.0, 6.0), 100, (100, 127)),
        ((-1.0, 1.0), -3, (-13, 7)),
        ((1.0, 2.0), 0, (10, 20)),
        ((None, None), 9, (-128, 127)),
        ((None, -1.0), 0, (-128, -10)),
        ((-np.inf, np.inf), 0, (-128, 127)),
    ],
)
def test_a_fused_clamp_is_a_code_range_for_any_zero_point(
    bounds: tuple[float | None, float | None], zero: int, wanted: tuple[int, int]
) -> None:
    assert fused_range(bounds, QParams.of(0.1, zero)) == wanted


def test_a_fused_clamp_keeps_the_codes_of_the_output_range() -> None:
    assert fused_range((None, None), QParams.of(0.1, 0, -127, 127)) == (-127, 127)


def test_a_clamp_without_a_meaning_is_refused() -> None:
    with pytest.raises(QParamError, match="NaN"):
        fused_range((float("nan"), 1.0), QParams.of(0.1))
    with pytest.raises(QParamError, match="min is above max"):
        fused_range((2.0, 1.0), QParams.of(0.1))


# bias


def test_bias_codes_are_divided_in_float64_ties_to_even() -> None:
    codes = bias_codes(f32(1.5, 2.5, -0.5), 1.0, f32(1.0))
    assert codes.tolist() == [2, 2, 0] and codes.dtype == np.int64
    assert bias_scale(0.1, f32(0.3))[0] == float(np.float32(0.1)) * float(np.float32(0.3))


def test_g2_bias_codes_beyond_int32_are_told_whole() -> None:
    codes = bias_codes(f32(5, -4.5), 0.5, f32(7.843e-10))
    assert np.allclose(codes, [1.275e10, -1.1475e10], rtol=1e-3)
    assert np.all(np.abs(codes) > 2**31 - 1)


def test_each_channel_has_its_own_bias_scale() -> None:
    assert bias_codes(f32(1, 1), 0.5, f32(0.5, 0.25)).tolist() == [4, 8]


# dead channels


def test_g1_a_dead_channel_has_codes_0_and_dequantizes_to_exact_0() -> None:
    w = rng.uniform(-1, 1, (4, 5)).astype(np.float32)
    w[0] = 0
    scale = np.maximum(np.abs(w).max(axis=1) / 127, 2.0**-40).astype(np.float32)
    q = QParams.of(scale, 0, -127, 127, axis=0, name="w")
    codes = q.quantize(w)
    assert not codes[0].any() and not q.dequantize(codes)[0].any()
    assert np.abs(codes[1:]).max(axis=1).tolist() == [127, 127, 127]
    with pytest.raises(QParamError, match="channel 0"):
        QParams.of(np.abs(w).max(axis=1) / 127, 0, -127, 127, axis=0, name="w")
