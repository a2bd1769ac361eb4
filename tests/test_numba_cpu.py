"""The Numba kernels beside what conformance asks: random shapes, wrap-around, threads, JIT off."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qtoolkit.backends import numba_cpu
from qtoolkit.backends.numba_cpu import KERNELS, bands, loops_cells
from qtoolkit.backends.numba_cpu.memory import channels_last, lies_channels_last, logical
from qtoolkit.errors import QParamError
from qtoolkit.graph import Const, DType, Graph, Ref, leaves
from qtoolkit.kernel import RUNTIME, Kernel
from qtoolkit.layout import CHANNELS_LAST, CONTIGUOUS, TensorRepr
from qtoolkit.ops import OPS, Example
from qtoolkit.ops.examples import codes, one_node, sums
from qtoolkit.qparams import MODES, multiplier_shift

Array = np.ndarray[Any, Any]
PACKAGE = Path(numba_cpu.__file__).parent


def laid(x: Array, order: TensorRepr) -> Array:
    """A copy of logical x in the given order."""
    return logical(channels_last(x).copy()) if order == CHANNELS_LAST else x.copy()


def bound(kernel: Kernel, graph: Graph) -> Any:
    def resolve(arg: Any) -> Any:
        if isinstance(arg, tuple):
            return tuple(map(resolve, arg))
        return (
            graph.array(arg) if isinstance(arg, Const) else RUNTIME if isinstance(arg, Ref) else arg
        )

    return kernel.bind(tuple(map(resolve, graph["y"].args)))


def computed(op: str, args: tuple[Any, ...], order: TensorRepr | None = None) -> tuple[str, Array]:
    """The name and result of the kernel that lower would choose, its operands as it demands."""
    graph, inputs = one_node(OPS[op], Example("", args))
    node = graph["y"]
    kernel = next(k for k in KERNELS[op] if k.why_not(node, graph) is None)
    reps = kernel.reps(node, graph)
    operands = []
    for slot, arg in enumerate(node.args):
        for leaf in leaves(arg):
            if isinstance(leaf, Ref):
                repset = reps.inputs[slot]
                assert repset is not None
                wanted = order if order is not None and order in repset else repset.reprs[0]
                operands.append(laid(inputs[leaf.node], wanted))
    return kernel.name, bound(kernel, graph)(*operands)


def assert_equal(op: str, args: tuple[Any, ...], order: TensorRepr | None = None) -> str:
    """Assert that kernel and reference agree to the bit; the kernel's name."""
    name, got = computed(op, args, order)
    wanted = np.asarray(OPS[op].reference(*args))
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    assert got.tobytes() == wanted.tobytes(), f"{np.sum(got != wanted)} of {got.size} differ"
    return name


def conv_case(rng: np.random.Generator, kind: str, mode: str = "float") -> tuple[Any, ...]:
    """Random arguments of q8_conv2d, of a size that computes in a millisecond."""
    dtype = rng.choice(["int8", "uint8"])
    taps = (1, 1) if kind == "pointwise" else tuple(rng.integers(1, 6, 2).tolist())
    plain = kind == "pointwise"
    stride = (1, 1) if plain else tuple(rng.integers(1, 4, 2).tolist())
    padding = (0, 0) if plain else tuple(rng.integers(0, 4, 2).tolist())
    dilation = (1, 1) if plain else tuple(rng.integers(1, 4, 2).tolist())
    if kind == "depthwise":
        groups = int(rng.integers(2, 40))
        C, outputs = groups, groups * int(rng.integers(1, 4))
    else:
        groups = 1 if plain else int(rng.integers(1, 4))
        C, outputs = (groups * int(n) for n in rng.integers(1, 90, 2))
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
    H, W = (
        max(s - 2 * p, 1) + int(e)
        for s, p, e in zip(spans, padding, rng.integers(0, 9, 2), strict=True)
    )
    per_channel = outputs if rng.random() < 0.5 else 1
    K = taps[0] * taps[1] * C // groups
    factor = rng.uniform(0.5, 1.5, per_channel) * 0.01 / K**0.5
    zero, low = (131, 0) if dtype == "uint8" else (-5, -128)
    return (
        codes(int(rng.integers(1, 3)), C, H, W, dtype=dtype, seed=int(rng.integers(99))),
        rng.integers(-127, 128, (outputs, C // groups, *taps)).astype(np.int8),
        rng.integers(-9999, 9999, outputs).astype(np.int32),
        stride, padding, dilation, groups, zero,
        rng.integers(-9, 9, per_channel).astype(np.int32), np.ones(per_channel),
        *multiplier_shift(factor.astype(np.float32)), 0.1, zero - 3, low, low + 255, mode,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["general", "pointwise", "depthwise"])
@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions_equal_the_reference(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    assert assert_equal("q8_conv2d", conv_case(rng, kind, MODES[seed % 3])) == kind


@pytest.mark.parametrize(
    "shape", [(1, 1280, 100), (7, 63, 33), (5, 64, 31), (33, 24, 144), (4, 1, 1)]
)
def test_linear_of_every_packing_equals_the_reference(shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    rng = np.random.default_rng(K)
    w = rng.integers(-127, 128, (N, K)).astype(np.int8)
    bias = rng.integers(-9999, 9999, N).astype(np.int32)
    m, s = multiplier_shift((rng.uniform(0.5, 1.5, N) * 0.01 / K**0.5).astype(np.float32))
    y = (0.1, 3, -128, 127, "float")
    args = (codes(M, K), w, bias, -7, np.zeros(1, np.int32), np.ones(N), m, s, *y)
    assert_equal("q8_linear", args)


@pytest.mark.parametrize("order", [CONTIGUOUS, CHANNELS_LAST])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, 3])
def test_cells_in_either_order_and_along_every_axis(order: TensorRepr, axis: int | None) -> None:
    shape = (2, 5, 3, 7)
    n = 1 if axis is None else shape[axis]
    x = codes(*shape)
    scale = np.linspace(0.02, 0.3, n).astype(np.float32)
    zero = (np.arange(n, dtype=np.int32) * 7) % 23 - 11
    real = np.linspace(-40, 40, x.size, dtype=np.float32).reshape(shape)
    assert_equal("quantize", (real, scale, zero, axis, -128, 127, DType.INT8), order)
    assert_equal("dequantize", (x, scale, zero, axis, -128, 127), order)
    for mode in MODES:
        y = (axis, 0.1, 3, -128, 127, mode)
        assert_equal("requantize", (sums(*shape), 5, *multiplier_shift(scale * 1e-6), *y), order)


@pytest.mark.parametrize("order", [CONTIGUOUS, CHANNELS_LAST])
def test_tied_kernels_keep_the_order_of_their_input(order: TensorRepr) -> None:
    a, b = codes(2, 5, 3, 7), codes(2, 5, 3, 7, seed=1)
    for op, args in (
        ("q8_add", (a, b, 0.1, 3, 0.05, -2, 1.0, 0.11, 0, -128, 127)),
        ("q8_clamp", (a, -3, 90)),
        ("aten.cat.default", ((a, b), 1)),
        ("aten.cat.default", ((a, b), -1)),
        ("aten.clone.default", (a, None)),
    ):
        assert_equal(op, args, order)
        _, got = computed(op, args, order)
        assert lies_channels_last(got) == (order == CHANNELS_LAST), op


def test_sums_wrap_modulo_two_to_the_32() -> None:
    """K large enough that bias + sum passes 2^31 several times in either direction."""
    K = 200_000
    x = np.full((2, K), 127, np.int8)
    w = np.stack([np.full(K, 127, np.int8), np.full(K, -127, np.int8)])
    bias = np.array([2**31 - 1, -(2**31)], np.int32)
    m, s = multiplier_shift(np.full(1, 3e-8, np.float32))
    y = (0.1, 0, -128, 127, "float")
    args = (x, w, bias, -128, np.zeros(1, np.int32), np.ones(1), m, s, *y)
    exact = 255 * 127 * K + 2**31 - 1
    assert exact > 2**32
    assert_equal("q8_linear", args)


@pytest.mark.parametrize("mode", MODES)
def test_int32_codes_where_float32_rounds(mode: str) -> None:
    edges = [2**24 + 1, 2**25 + 2, 2**31 - 1]
    x = np.array([*edges, *(-e for e in edges), -(2**31), 0], np.int32)
    for r in (2.0**-18, 2.0**-17 * 1.0000001, 2.0**-24, 0.75, 3.0):
        m, s = multiplier_shift(np.full(1, r, np.float32))
        assert_equal("requantize", (x, 0, m, s, None, 0.1, 0, -128, 127, mode))
        assert_equal("requantize", (x, 5, m, s, None, 0.1, 3, -128, 127, mode))


def test_fixed_and_fixed_double_differ_where_the_contract_says() -> None:
    m, s = np.array([1583594044], np.int32), np.array([-9], np.int32)
    x = np.array([7984], np.int32)
    tail = (None, 0.1, 0, -128, 127)
    assert computed("requantize", (x, 0, m, s, *tail, "fixed"))[1][0] == 11
    assert computed("requantize", (x, 0, m, s, *tail, "fixed_double"))[1][0] == 12


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["general", "pointwise", "depthwise"])
def test_a_pruned_channel_gives_the_zero_point(kind: str, mode: str) -> None:
    args = list(conv_case(np.random.default_rng(5), kind, mode))
    outputs = args[1].shape[0]
    factor = np.full(outputs, 1e-3, np.float32)
    factor[0] = 0
    args[10:12] = multiplier_shift(factor)
    assert_equal("q8_conv2d", tuple(args))
    assert np.all(computed("q8_conv2d", tuple(args))[1][:, 0] == args[13])


def test_a_shift_that_fixed_cannot_do_is_refused_when_bound() -> None:
    args = (codes(3), 0, np.array([2**30], np.int32), np.array([31], np.int32), None, 0.1, 0, -128,
            127, "fixed")  # fmt: skip
    with pytest.raises(QParamError, match="shift 31 is above 30"):
        computed("requantize", args)


@pytest.mark.parametrize("kind", ["general", "pointwise", "depthwise"])
def test_results_do_not_depend_on_threads(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "ALONE", 100)
    given = conv_case(np.random.default_rng(7), kind)
    args = (codes(2, given[0].shape[1], 13, 17, dtype=given[0].dtype.name), *given[1:])
    results = []
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(bands.config, "NUMBA_NUM_THREADS", count)
        results.append(computed("q8_conv2d", args)[1].tobytes())
    assert len(set(results)) == 1


def test_bands_cover_every_index_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "ALONE", 1)
    for threads in (1, 2, 5):
        monkeypatch.setattr(bands.config, "NUMBA_NUM_THREADS", threads)
        for count in (0, 1, 3, 4, 5, 16, 33):
            seen: list[int] = []
            bands.in_bands(lambda a, b, to=seen: to.extend(range(a, b)), count, 10**9, 4)
            assert sorted(seen) == list(range(count))


def test_an_error_in_a_band_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "ALONE", 1)
    monkeypatch.setattr(bands.config, "NUMBA_NUM_THREADS", 2)

    def loop(start: int, stop: int) -> None:
        if start:
            raise QParamError("in the second band")

    with pytest.raises(QParamError, match="second band"):
        bands.in_bands(loop, 8, 10**9)


def test_read_only_and_strided_inputs_are_taken() -> None:
    args = conv_case(np.random.default_rng(3), "general")
    graph, inputs = one_node(OPS["q8_conv2d"], Example("", args))
    run = bound(KERNELS["q8_conv2d"][-1], graph)
    x = laid(inputs["x"], CHANNELS_LAST)
    wanted = run(x)
    x.setflags(write=False)
    assert np.array_equal(run(x), wanted)
    strided = np.repeat(inputs["x"], 2, axis=2)[:, :, ::2]
    assert np.array_equal(run(strided), wanted)


def test_float_ops_run_the_reference_under_its_name() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 3, 5, 5)), rng.normal(size=(4, 3, 3, 3))
    args = (x.astype(np.float32), w.astype(np.float32), None, (1, 1), (1, 1), (1, 1), 1)
    assert assert_equal("aten.conv2d.default", args) == "reference"
    pool = (x.astype(np.float32), (2, 2), (), (0, 0), (1, 1), False)
    assert assert_equal("aten.max_pool2d.default", pool) == "reference"
    assert set(KERNELS) == set(OPS) - {"getitem"}


def test_device_names_cpu_threads_and_vectors() -> None:
    assert re.fullmatch(r".+, \d+ threads, auto-vectorized for \S.*", numba_cpu.device())


def test_no_compiled_loop_calls_into_another_file() -> None:
    """Numba compiles a cached loop again when its own file changes, not when a callee's does."""
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text())
        if not any("njit" in ast.unparse(d) for n in tree.body if isinstance(n, ast.FunctionDef)
                   for d in n.decorator_list):  # fmt: skip
            continue
        imported = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
        assert not any("qtoolkit" in ast.unparse(n) for n in imported), path.name


def test_no_multiply_and_add_is_contracted() -> None:
    """numbers.md rounds every operation by itself; a fused multiply-add would not."""
    x = np.arange(64, dtype=np.int8)
    y = np.empty(64, np.uint8)
    add = loops_cells.q8_add.py_func
    from numba import njit

    compiled = njit(nogil=True)(add)  # loaded from the cache, a loop cannot be inspected
    ratios, zeros = np.array([0.3, 0.7], np.float32), np.zeros(2, np.int32)
    compiled(x, x, ratios, zeros, (0, -128, 127), y)
    (text,) = compiled.inspect_asm().values()
    assert "mulps" in text
    assert not re.search(r"\bv?fn?m(add|sub)", text)


JIT_OFF = """
import sys, warnings
sys.path.insert(0, {tests!r})
warnings.simplefilter("ignore")  # NumPy warns where int32 wraps, as it is meant to
import numpy as np
import test_numba_cpu as t
from qtoolkit.backends.numba_cpu import loops
assert not hasattr(loops.conv, "py_func"), "the JIT is on"
for kind in ("general", "pointwise", "depthwise"):
    args = list(t.conv_case(np.random.default_rng(2), kind))
    args[0] = args[0][:1]
    t.assert_equal("q8_conv2d", tuple(args))
for mode in t.MODES:
    m, s = t.multiplier_shift(np.full(1, 1e-7, np.float32))
    t.assert_equal("requantize", (t.sums(5, 7), 5, m, s, None, 0.1, 3, -128, 127, mode))
a, b = t.codes(1, 5, 3, 3), t.codes(1, 5, 3, 3, seed=1)
t.assert_equal("q8_add", (a, b, 0.1, 3, 0.05, -2, 1.0, 0.11, 0, -128, 127))
t.assert_equal("aten.max_pool2d.default", (a, (2, 2), (1, 1), (1, 1), (1, 1), False))
pool = (0.1, 3, 0.05, -2, -128, 127)
t.assert_equal("q8_avg_pool2d", (a, (2, 2), (1, 1), (1, 1), False, True, None, *pool))
odd = np.array([np.nan, np.inf, -np.inf, 0.5, 1.5], np.float32)
one = (np.ones(1, np.float32), np.ones(1, np.int32), None, -128, 127)
t.assert_equal("quantize", (odd, *one, t.DType.INT8))
t.assert_equal("dequantize", (a, *one))
print("equal")
"""


def test_the_same_loops_without_the_jit() -> None:
    """The source means the same as Python: nothing rests on what compilation does to it."""
    script = JIT_OFF.format(tests=str(Path(__file__).parent))
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr[-2000:]


def test_a_read_only_package_is_cached_elsewhere(tmp_path: Path) -> None:
    """As installed by root: Numba then keeps compiled loops in the user's cache folder."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "loops_cells.py").write_text((PACKAGE / "loops_cells.py").read_text())
    (package / "__pycache__").write_text("no folder can be made here")
    script = (
        "import numpy as np, loops_cells as m\n"
        "x, y = np.ones((1, 1, 3), np.int8), np.empty((1, 1, 3), np.float32)\n"
        "m.dequantize(x, np.ones(1, np.float32), np.zeros(1, np.int32), y)\n"
        "print(y.sum())"
    )
    env = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "3.0\n", done.stderr[-2000:]
    assert list((tmp_path / "cache").rglob("*.nbi"))
