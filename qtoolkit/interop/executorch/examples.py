"""Small graphs in ExecuTorch's operators, each for one rule of its placement."""

from collections.abc import Sequence

from qtoolkit.graph import Arg, Const, Constant, DType, Graph, Node, Ref, TensorType

IMAGE = (1, 16, 14, 14)
TOKENS = (1, 32, 64)


class _Writer:
    """A graph being written: an op's result is named after it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}

    def input(self, name: str, shape: Sequence[int]) -> Ref:
        self.nodes.append(Node(name, "input", (), (TensorType(tuple(shape), DType.FLOAT32),)))
        return Ref(name)

    def constant(self, name: str, shape: Sequence[int], dtype: DType = DType.FLOAT32) -> Const:
        self.constants[name] = Constant(TensorType(tuple(shape), dtype))
        return Const(name)

    def op(
        self, name: str, op: str, args: Sequence[Arg], shape: Sequence[int],
        dtype: DType = DType.FLOAT32,
    ) -> Ref:  # fmt: skip
        kind = TensorType(tuple(shape), dtype)
        self.nodes.append(Node(name, op, tuple(args), (kind,), (name,)))
        return Ref(name)

    def graph(self, *outputs: Ref) -> Graph:
        inputs = tuple(n.name for n in self.nodes if n.op == "input")
        return Graph(tuple(self.nodes), inputs, outputs, constants=self.constants).check()


def quantized_pair() -> Graph:
    """quantize -> two int8 convolutions -> dequantize.

    Seed 001: quantize ties its result to nothing and may write any packed int8 layout; the first
    convolution reads one of them, the pointwise one another.
    """
    g = _Writer()
    wide = DType.INT32
    codes = (0.05, 0, -128, 127, DType.INT8)
    q = g.op("quantize", "quantized_decomposed::quantize_per_tensor", (g.input("x", IMAGE), *codes),
             IMAGE, DType.INT8)  # fmt: skip
    y = q
    for name, op, width in (("conv", "q8ta_conv2d", 144), ("pointwise", "q8ta_conv2d_pw", 16)):
        weight = g.constant(f"{name}.weight", (16, width), DType.INT8)
        sums = g.constant(f"{name}.sums", (16,), wide)
        scales, bias = g.constant(f"{name}.scales", (16,)), g.constant(f"{name}.bias", (16,))
        rest: tuple[Arg, ...] = ((3, 3), (1, 1), (1, 1), (1, 1), 1, "relu")
        args = (y, 0.05, 0, weight, sums, scales, 0.05, 0, bias, *rest)
        y = g.op(name, f"et_vk::{op}", args, IMAGE, DType.INT8)
    return g.graph(
        g.op("dequantize", "quantized_decomposed::dequantize_per_tensor", (y, *codes), IMAGE)
    )


def shared_buffer() -> Graph:
    """G12: one value in a buffer that two texture ops read; they share one transition."""
    g = _Writer()
    steps = g.constant("scales", (16,)), g.constant("zero_points", (16,), DType.INT64)
    args = (g.input("x", IMAGE), *steps, 1, -128, 127, DType.INT8)
    q = g.op("quantize", "quantized_decomposed::quantize_per_channel", args, IMAGE, DType.INT8)
    back = (q, *steps, 1, -128, 127, DType.INT8, None)
    x = g.op("dequantize", "quantized_decomposed::dequantize_per_channel", back, IMAGE)
    pool = ((2, 2), (2, 2), (0, 0), False, True, None)
    half = (1, 16, 7, 7)
    one = g.op("pool_1", "aten::avg_pool2d", (x, *pool), half)
    return g.graph(one, g.op("pool_2", "aten::avg_pool2d", (x, *pool), half))


def convolution_then_linears(blocks: int = 6) -> Graph:
    """G12: a convolution, then residual linears; taking what the source has locks its layout in."""
    g = _Writer()
    weight, bias = g.constant("conv.weight", (64, 64, 1, 1)), g.constant("conv.bias", (64,))
    shape = (1, 64, 32, 64)
    geometry: tuple[Arg, ...] = ((1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    x = g.op("conv", "aten::convolution", (g.input("x", shape), weight, bias, *geometry), shape)
    for i in range(blocks):
        w, b = g.constant(f"linear_{i}.weight", (64, 64)), g.constant(f"linear_{i}.bias", (64,))
        y = g.op(f"linear_{i}", "aten::linear", (x, w, b), shape)
        x = g.op(f"add_{i}", "aten::add.Tensor", (x, y), shape)
    return g.graph(x)


def fan_out(blocks: int = 12) -> Graph:
    """G13: blocks of x -> {add, mul, relu} -> sum, whose paths double and triple block by block."""
    g = _Writer()
    x = g.input("x", TOKENS)
    for i in range(blocks):
        a = g.op(f"add_{i}", "aten::add.Tensor", (x, x), TOKENS)
        b = g.op(f"mul_{i}", "aten::mul.Tensor", (x, x), TOKENS)
        c = g.op(f"relu_{i}", "aten::relu", (x,), TOKENS)
        both = g.op(f"part_{i}", "aten::add.Tensor", (a, b), TOKENS)
        x = g.op(f"sum_{i}", "aten::add.Tensor", (both, c), TOKENS)
    return g.graph(x)
