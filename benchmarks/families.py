"""Families of graphs to measure placement on, in the recorded form of ExecuTorch's delegates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
IMAGE = (1, 16, 14, 14)
TOKENS = (1, 32, 64)
LIMITS = [16384, 16384, 2048]


class Recorded:
    """A graph being written: values are names."""

    def __init__(self) -> None:
        self.nodes: list[Json] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ops = 0

    def input(self, name: str, shape: Sequence[int], constant: bool = False) -> str:
        node: Json = {"name": name, "op": "placeholder", "target": name, "args": []}
        node["val"] = {"shape": list(shape), "dtype": "float32"}
        if constant:
            node["tensorref"] = True
        self.nodes.append(node)
        self.shapes[name] = tuple(shape)
        return name

    def op(self, target: str, args: Sequence[Any], shape: Sequence[int]) -> str:
        name = f"{target.split('::')[-1].replace('.', '_').lower()}_{self.ops}"
        self.ops += 1
        told = [self._arg(a) for a in args]
        self.nodes.append(
            {"name": name, "op": "call_function", "target": target, "args": told,
             "val": {"shape": list(shape), "dtype": "float32"}}
        )  # fmt: skip
        self.shapes[name] = tuple(shape)
        return name

    def _arg(self, arg: Any) -> Any:
        if isinstance(arg, str) and arg in self.shapes:
            return {"n": arg}
        return [self._arg(a) for a in arg] if isinstance(arg, list | tuple) else arg

    def like(self, target: str, x: str, *more: Any) -> str:
        """An op whose result has the shape of its first operand."""
        return self.op(target, (x, *more), self.shapes[x])

    def conv(self, x: str, weight: str, bias: str) -> str:
        one = [1, 1]
        return self.like("aten::convolution", x, weight, bias, one, one, one, False, [0, 0], 1)

    def graph(self, *outputs: str) -> Json:
        told = [{"n": name} for name in outputs]
        vals = [{"shape": list(self.shapes[n]), "dtype": "float32"} for n in outputs]
        end = {"name": "output", "op": "output", "target": "output", "args": [told], "val": vals}
        # Constants come first, as in exported programs.
        held = [n for n in self.nodes if n["op"] == "placeholder"]
        calls = [n for n in self.nodes if n["op"] != "placeholder"]
        return {
            "texture_limits": LIMITS,
            "force_fp16": False,
            "pre": {"nodes": [*held, *calls, end]},
        }

    def weights(self, layer: int, *shape: int) -> tuple[str, str]:
        return (
            self.input(f"p_w_{layer}", shape, constant=True),
            self.input(f"p_b_{layer}", shape[:1], constant=True),
        )


UNARY = ("aten::relu", "aten::sigmoid", "aten::tanh", "aten::abs")


def chain(ops: int) -> Json:
    """Elementwise ops that admit everything, behind each other: every search runs to its budget."""
    g = Recorded()
    x = g.input("x", IMAGE)
    for i in range(ops):
        x = g.like(UNARY[i % len(UNARY)], x)
    return g.graph(x)


def residual(ops: int) -> Json:
    """Blocks of two elementwise ops and an add: nothing decides, and paths double at each block."""
    g = Recorded()
    x = g.input("x", IMAGE)
    while g.ops < ops:
        y = g.like("aten::tanh", g.like("aten::relu", x))
        x = g.op("aten::add.Tensor", (x, y), IMAGE)
    return g.graph(x)


def convolutions(ops: int) -> Json:
    """Blocks of convolution, relu, convolution, add: decided by their kernels, hardly a search."""
    g = Recorded()
    x = g.input("x", IMAGE)
    while g.ops < ops:
        a, b = g.weights(2 * g.ops, 16, 16, 3, 3), g.weights(2 * g.ops + 1, 16, 16, 3, 3)
        y = g.conv(g.like("aten::relu", g.conv(x, *a)), *b)
        x = g.op("aten::add.Tensor", (x, y), IMAGE)
    return g.graph(x)


def wide(ops: int) -> Json:
    """One value with as many readers as there are ops, none of which decides; all are outputs."""
    g = Recorded()
    source = g.like("aten::relu", g.input("x", TOKENS))
    return g.graph(*(g.like(UNARY[i % len(UNARY)], source) for i in range(ops - 1)))


def shared_weight(ops: int) -> Json:
    """A chain of linears that all have one weight."""
    g = Recorded()
    x = g.input("x", TOKENS)
    weight, bias = g.weights(0, 64, 64)
    while g.ops < ops:
        x = g.like("aten::gelu", g.like("aten::linear", x, weight, bias), "none")
    return g.graph(x)


def dense(ops: int) -> Json:
    """Every result is read by the next four: sums of earlier results, none of which decides."""
    g = Recorded()
    last = [g.like("aten::relu", g.input("x", IMAGE))]
    while g.ops < ops:
        back = last[max(-len(last), -1 - g.ops % 4)]
        last = [*last[-4:], g.op("aten::add.Tensor", (last[-1], back), IMAGE)]
    return g.graph(last[-1])


def transformer(ops: int) -> Json:
    """Blocks of attention with four heads and a feed-forward part."""
    g = Recorded()
    x = g.input("x", TOKENS)
    heads, flat = (1, 4, 32, 16), (4, 32, 16)
    while g.ops < ops:
        parts = []
        for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
            y = g.like("aten::linear", x, *g.weights(g.ops, 64, 64))
            y = g.op("aten::view_copy", (y, [1, 32, 4, 16]), (1, 32, 4, 16))
            turned = [(1, 32, 4, 16)[d] for d in order]
            y = g.op("aten::permute_copy", (y, list(order)), turned)
            parts.append(g.op("aten::squeeze_copy.dims", (y, [0]), turned[1:]))
        q, k, v = parts
        scores = g.op("aten::bmm", (q, k), (4, 32, 32))
        scores = g.like("aten::_softmax", scores, -1, False)
        y = g.op("aten::bmm", (scores, v), flat)
        y = g.op("aten::unsqueeze_copy", (y, 0), heads)
        y = g.op("aten::permute_copy", (y, [0, 2, 1, 3]), (1, 32, 4, 16))
        y = g.op("aten::view_copy", (y, [1, 32, 64]), TOKENS)
        y = g.like("aten::linear", y, *g.weights(g.ops, 64, 64))
        x = g.op("aten::add.Tensor", (x, y), TOKENS)
        y = g.op("aten::linear", (x, *g.weights(g.ops, 256, 64)), (1, 32, 256))
        y = g.op(
            "aten::linear", (g.like("aten::gelu", y, "none"), *g.weights(g.ops, 64, 256)), TOKENS
        )
        x = g.op("aten::add.Tensor", (x, y), TOKENS)
    return g.graph(x)


def alternating(ops: int) -> Json:
    """Convolutions and batched products in turn: one wants channels packed, the other width."""
    g = Recorded()
    x = g.input("x", IMAGE)
    k = g.input("k", (16, 14, 14))
    while g.ops < ops:
        x = g.conv(x, *g.weights(g.ops, 16, 16, 3, 3))
        y = g.op("aten::squeeze_copy.dims", (x, [0]), (16, 14, 14))
        y = g.op("aten::bmm", (y, k), (16, 14, 14))
        x = g.op("aten::unsqueeze_copy", (y, 0), IMAGE)
    return g.graph(x)


FAMILIES: Mapping[str, Callable[[int], Json]] = {
    "chain": chain,
    "residual": residual,
    "wide fan-out": wide,
    "shared weight": shared_weight,
    "dense": dense,
    "transformer": transformer,
    "alternating": alternating,
}
