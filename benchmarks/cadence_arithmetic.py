"""Where the graph's arithmetic and that of Cadence's reference kernels differ, and how often.

    python benchmarks/cadence_arithmetic.py [--seed 0]

Random scales, sums that span the codes; qtoolkit's kernels of both sides, in int8. Needs torch.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

from qtoolkit.interop.cadence import KERNELS
from qtoolkit.ops.elementwise import q8_add
from qtoolkit.ops.requantize import rescale
from qtoolkit.qparams import MODES, multiplier_shift, ratio

Array = np.ndarray[Any, Any]
TRIPLES = 1_000_000
OUT_SCALES = 2000
CHANNELS = 2000


def scales(rng: np.random.Generator, count: int) -> Array:
    """float32 scales, log-uniform from 2^-12 to 1."""
    return np.exp2(rng.uniform(-12, 0, count)).astype(np.float32)


def row(what: str, ours: Array, theirs: Array) -> dict[str, Any]:
    """Share and greatest size of the differences of two arrays of codes."""
    apart = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    return {
        "what": what,
        "of": apart.size,
        "percent": 100 * np.count_nonzero(apart) / apart.size,
        "most": int(apart.max()),
    }


def factors(rng: np.random.Generator) -> dict[str, Any]:
    """r = x w / y rounded once, against float32(x w) times float32(1 / y), rounded again."""
    x, w, y = (scales(rng, TRIPLES) for _ in range(3))
    once = ratio(x.astype(np.float64) * w, y)
    twice = (x.astype(np.float64) * w).astype(np.float32) * (1 / y.astype(np.float64)).astype(
        np.float32
    )
    return row("requantize factor r, in units of its last bit", once.view("i4"), twice.view("i4"))


def layer(rng: np.random.Generator) -> tuple[Array, ...]:
    """x_scale, w_scale[O], y_scale, y_zero and sums[O] whose codes fall into the int8 range."""
    x, y = scales(rng, 1), scales(rng, 1)
    # Networks have r below 1; 2^-16 is a sum of 2^23 for the widest code.
    w = (np.exp2(rng.uniform(-16, 0, CHANNELS)) * y / x).astype(np.float32)
    r = ratio(x.astype(np.float64) * w, y)
    y_zero = rng.integers(-64, 64)
    acc = np.rint(rng.uniform(-128, 128, CHANNELS) / r).astype(np.int32)
    return x, w, y, y_zero, acc


def conv(x: Array, w: Array, y: Array, y_zero: int, acc: Array) -> Array:
    """Codes of Cadence's conv for given sums: they stand in its bias, over weights of zero."""
    O = acc.size
    codes = KERNELS["quantized_conv1d_ncl"](
        torch.zeros(1, 1, 1, dtype=torch.int8),
        torch.zeros(O, 1, 1, dtype=torch.int8),
        torch.from_numpy(acc),
        [1], [0], [1], 1, 0,
        torch.zeros(1, dtype=torch.int32),
        torch.from_numpy((x.astype(np.float64) * w).astype(np.float32)),
        float(y[0]),
        int(y_zero),
        torch.ones(1, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
    )  # fmt: skip
    return np.asarray(codes.reshape(-1).numpy())


def linear(acc: Array, multiplier: Array, shift: Array, y_zero: int) -> Array:
    """Codes of Cadence's linear for given sums, in the same way."""
    codes = KERNELS["quantized_linear"](
        torch.zeros(1, 1, dtype=torch.int8),
        torch.zeros(acc.size, 1, dtype=torch.int8),
        torch.from_numpy(acc),
        0,
        torch.zeros(1, dtype=torch.int32),
        torch.from_numpy(multiplier),
        torch.from_numpy(shift),
        int(y_zero),
        None,
    )
    return np.asarray(codes.reshape(-1).numpy())


def add(rng: np.random.Generator) -> tuple[Array, Array]:
    """Codes of an add in the graph and in Cadence."""
    a, b = rng.integers(-128, 128, (2, CHANNELS)).astype(np.int8)
    a_scale, b_scale = (float(s) for s in scales(rng, 2))
    y_scale = float(np.float32(a_scale + b_scale))
    a_zero, b_zero, y_zero = (int(z) for z in rng.integers(-64, 64, 3))
    ours = q8_add(a, b, a_scale, a_zero, b_scale, b_zero, 1.0, y_scale, y_zero, -128, 127)
    theirs = KERNELS["quantized_add.per_tensor"](
        torch.from_numpy(a), a_scale, a_zero,
        torch.from_numpy(b), b_scale, b_zero,
        y_scale, y_zero,
    )  # fmt: skip
    return ours, theirs.numpy()


def rows(seed: int = 0) -> Iterator[dict[str, Any]]:
    """One row per comparison: what, of how many, percent that differ, the greatest difference."""
    rng = np.random.default_rng(seed)
    yield factors(rng)
    graph: dict[str, list[Array]] = {mode: [] for mode in MODES}
    convs, linears, negated = [], [], []
    for _ in range(OUT_SCALES):
        x, w, y, y_zero, acc = layer(rng)
        m, s = multiplier_shift(ratio(x.astype(np.float64) * w, y))
        for mode in MODES:
            graph[mode].append(rescale(acc, m, s, 0, int(y_zero), -128, 127, mode))
        convs.append(conv(x, w, y, y_zero, acc))
        linears.append(linear(acc, m, s, y_zero))
        negated.append(linear(acc, -m, s, y_zero))
    for mode in MODES:
        yield row(f"conv, graph in mode {mode}", *map(np.concatenate, (graph[mode], convs)))
    ours = np.concatenate(graph["float"])
    yield row("linear, multipliers as emitted", ours, np.concatenate(linears))
    yield row("linear, multipliers negated", ours, np.concatenate(negated))
    pairs = [add(rng) for _ in range(OUT_SCALES)]
    yield row("add", *(np.concatenate(side) for side in zip(*pairs, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    print(f"{'':46} {'values':>9} {'differ':>10} {'by at most':>10}")
    for each in rows(parser.parse_args().seed):
        print(f"{each['what']:46} {each['of']:9} {each['percent']:9.4f}% {each['most']:10}")


if __name__ == "__main__":
    main()
