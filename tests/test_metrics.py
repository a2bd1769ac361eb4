"""metrics.py: never NaN, never infinite, and the figures numbers.md asks for."""

import numpy as np
import pytest

from qtoolkit.metrics import measure, same_bits
from qtoolkit.qparams import QParams


def test_equal_tensors_are_exact_and_have_no_figure() -> None:
    found = measure(np.ones(3), np.ones(3))
    assert (found.sqnr, found.sqnr_db, found.max_abs) == ("exact", None, 0.0)


def test_zero_truth_with_an_error_has_no_signal() -> None:
    assert measure(np.zeros(3), np.ones(3)).sqnr == "no signal"


def test_sqnr_is_ten_log_ten_of_the_power_ratio() -> None:
    found = measure(np.array([3.0, 4.0]), np.array([3.0, 4.5]))
    assert found.sqnr_db == pytest.approx(20.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_never_reach_a_figure(bad: float) -> None:
    found = measure(np.array([1.0, bad]), np.array([2.0, 2.0]), QParams.of(0.5))
    told = [found.signal, found.noise, found.max_abs, found.max_steps, found.rmse_steps]
    assert found.sqnr == "no signal" and np.isfinite(np.array(told, float)).all()


def test_uniform_rounding_error_has_the_healthy_rmse() -> None:
    q = QParams.of(0.1)
    truth = np.random.default_rng(0).uniform(-10, 10, 20000).astype(np.float32)
    found = measure(truth, q.dequantize(q.quantize(truth)), q)
    assert found.rmse_steps == pytest.approx(12**-0.5, rel=0.02)
    assert found.agreement == 1.0 and found.max_steps == pytest.approx(0.5, abs=0.01)


def test_an_empty_tensor_is_exact() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert measure(empty, empty, QParams.of(1.0)).sqnr == "exact"


def test_bits_tell_zeros_and_nan_apart() -> None:
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert same_bits(np.array([np.nan]), np.array([np.nan]))
    assert not same_bits(np.zeros(1, np.int8), np.zeros(1, np.uint8))
