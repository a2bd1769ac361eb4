"""Small graphs written by hand, for tests that must not need torch."""

from collections.abc import Sequence

import numpy as np

from qtoolkit.graph import Arg, Const, Constant, DType, Graph, Node, Ref, TensorType

QD = "quantized_decomposed."


def tensor(*shape: int, dtype: DType = DType.FLOAT32) -> TensorType:
    return TensorType(shape, dtype)


class Builder:
    """Appends nodes by op and returns Refs; every float node is its own origin."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}

    def input(self, name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Ref:
        self.nodes.append(Node(name, "input", (), (TensorType(shape, dtype),)))
        return Ref(name)

    def const(self, name: str, array: object) -> Const:
        self.constants[name] = Constant.of(np.asarray(array))
        return Const(name)

    def op(self, name: str, op: str, args: Sequence[Arg], kind: TensorType) -> Ref:
        self.nodes.append(Node(name, op, tuple(args), (kind,), (name,)))
        return Ref(name)

    def quantize(self, name: str, x: Arg, shape: Sequence[int], scale: float, zero: int = 0) -> Ref:
        args = (x, scale, zero, -128, 127, DType.INT8)
        kind = TensorType(tuple(shape), DType.INT8)
        return self.op(name, QD + "quantize_per_tensor.default", args, kind)

    def dequantize(
        self, name: str, x: Arg, shape: Sequence[int], scale: float, zero: int = 0
    ) -> Ref:
        args = (x, scale, zero, -128, 127, DType.INT8, None)
        kind = TensorType(tuple(shape), DType.FLOAT32)
        return self.op(name, QD + "dequantize_per_tensor.default", args, kind)

    def dequantize_channels(
        self, name: str, x: Arg, shape: Sequence[int], scale: Sequence[float], axis: int = 0
    ) -> Ref:
        scales = self.const(f"{name}_scale", np.array(scale, np.float32))
        zeros = self.const(f"{name}_zero", np.zeros(len(scale), np.int64))
        args = (x, scales, zeros, axis, -127, 127, DType.INT8, None)
        kind = TensorType(tuple(shape), DType.FLOAT32)
        return self.op(name, QD + "dequantize_per_channel.default", args, kind)

    def graph(self, *outputs: Arg) -> Graph:
        inputs = tuple(n.name for n in self.nodes if n.op == "input")
        return Graph(tuple(self.nodes), inputs, outputs, constants=self.constants).check()


def quantized_conv(
    activation: str | None = "aten.relu.default",
    per_channel: bool = True,
    bias: object = (0.5, -0.25, 0.0),
    x_scale: float = 0.05,
    w_scale: Sequence[float] = (0.01, 0.02, 0.03),
    y_zero: int = -128,
) -> Graph:
    """input -> q -> dq -> conv2d 3->3 3x3 pad 1 (-> activation) -> q -> dq -> output."""
    b = Builder()
    x = b.input("x", 1, 3, 5, 5)
    q = b.quantize("q", x, (1, 3, 5, 5), x_scale, 3)
    dq = b.dequantize("dq", q, (1, 3, 5, 5), x_scale, 3)
    codes = np.random.default_rng(0).integers(-127, 128, (3, 3, 3, 3), dtype=np.int8)
    w = b.const("conv.weight", codes)
    if per_channel:
        dqw = b.dequantize_channels("dqw", w, (3, 3, 3, 3), w_scale)
    else:
        dqw = b.dequantize("dqw", w, (3, 3, 3, 3), w_scale[0])
    beta = None if bias is None else b.const("conv.bias", np.asarray(bias, np.float32))
    args = (dq, dqw, beta, (1, 1), (1, 1), (1, 1), 1)
    y = b.op("conv", "aten.conv2d.default", args, tensor(1, 3, 5, 5))
    if activation == "aten.hardtanh.default":
        y = b.op("act", activation, (y, 0.0, 6.0), tensor(1, 3, 5, 5))
    elif activation:
        y = b.op("act", activation, (y,), tensor(1, 3, 5, 5))
    qy = b.quantize("qy", y, (1, 3, 5, 5), 0.04, y_zero)
    return b.graph(b.dequantize("dqy", qy, (1, 3, 5, 5), 0.04, y_zero))
