"""What example cases are made of (codes, weights, factors), and a graph made of one case."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from qtoolkit.graph import Arg, Const, Constant, DType, Graph, Node, Ref, TensorType, map_leaves
from qtoolkit.ops.spec import Example, OpSpec
from qtoolkit.qparams import multiplier_shift

Array = NDArray[Any]


def _seeded(*key: object) -> np.random.Generator:
    """The same numbers for the same shape and purpose, whatever else was drawn before."""
    return np.random.default_rng(crc32(repr(key).encode()))


def qrange(dtype: str = "int8") -> tuple[int, int]:
    """The code range of a dtype."""
    return (0, 255) if dtype == "uint8" else (-128, 127)


def codes(*shape: int, dtype: str = "int8", seed: int = 0) -> Array:
    """Codes over the whole range, the first cells at its two ends."""
    low, high = qrange(dtype)
    made = _seeded(shape, dtype, seed).integers(low, high + 1, shape).astype(dtype)
    if made.size > 1:
        made.flat[0], made.flat[-1] = low, high
    return made


def reals(*shape: int, reach: float = 20.0, seed: int = 0) -> NDArray[np.float32]:
    """float32 numbers in ±reach, halves among them so that ties occur."""
    drawn = _seeded(shape, reach, seed).uniform(-reach, reach, shape)
    made: NDArray[np.float32] = drawn.astype(np.float32)
    made.flat[::3] = np.round(made.flat[::3] * 2) / 2
    return made


def sums(*shape: int) -> NDArray[np.int32]:
    """int32 values up to both ends, with those where float32 rounds among them."""
    made = _seeded(shape, "sums").integers(-(2**31), 2**31, shape).astype(np.int32)
    hard = np.array(
        [2**24 + 1, 2**25 + 2, 2**31 - 1, -(2**24) - 1, -(2**25) - 2, -(2**31) + 1, -(2**31), 0]
    )
    count = min(made.size, hard.size)
    made.flat[:count] = hard[:count]
    return made


def weights(*shape: int) -> NDArray[np.int8]:
    """int8 weight codes in -127..127."""
    return _seeded(shape, "weights").integers(-127, 128, shape).astype(np.int8)


def bias_of(O: int) -> NDArray[np.int32]:
    """int32 bias codes of some thousands."""
    return _seeded(O, "bias").integers(-5000, 5000, O).astype(np.int32)


def zeros_of(channels: int, wanted: bool = True) -> NDArray[np.int32]:
    """Weight zero points: unlike each other if wanted, else 0."""
    if not wanted:
        return np.zeros(channels, np.int32)
    return (np.arange(channels, dtype=np.int32) * 7 - 3) % 11 - 5


def factors(
    channels: int, r: float, spread: bool = True
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """out_multiplier and out_shift of factors near r, unlike each other if spread."""
    wobble = _seeded(channels, "factors").uniform(0.5, 1.5, channels) if spread else 1.0
    return multiplier_shift(np.full(channels, r * wobble).astype(np.float32))


def type_of(array: Array) -> TensorType:
    """The TensorType of an array."""
    return TensorType(array.shape, DType(array.dtype.name))


def types_of(spec: OpSpec, example: Example) -> tuple[TensorType, ...]:
    """The result types that the op's shape rule gives for an example."""
    as_types = map_leaves(tuple(example.args), _typed)
    assert isinstance(as_types, tuple)
    return spec.infer(*as_types)


def _typed(leaf: Any) -> Any:
    return type_of(leaf) if isinstance(leaf, np.ndarray) else leaf


def one_node(spec: OpSpec, example: Example) -> tuple[Graph, Mapping[str, Array]]:
    """A graph of the one node that an example describes, and the values of its inputs by name.

    Arrays become inputs, or constants where spec.constants says so; one in a list is named after
    its place in it.
    """
    inputs: dict[str, Array] = {}
    constants: dict[str, Constant] = {}

    def argument(value: Any, name: str, constant: bool) -> Arg:
        if isinstance(value, tuple | list):
            return tuple(argument(v, f"{name}_{i}", constant) for i, v in enumerate(value))
        if not isinstance(value, np.ndarray):
            kept: Arg = value
            return kept
        if constant:
            constants[name] = Constant.of(value)
            return Const(name)
        inputs[name] = value
        return Ref(name)

    args = tuple(
        argument(value, name, name in spec.constants)
        for name, value in zip(spec.schema, example.args, strict=True)
    )
    node = Node("y", spec.name, args, types_of(spec, example), ("y",))
    sources = tuple(Node(name, "input", (), (type_of(v),)) for name, v in inputs.items())
    outputs = tuple(Ref("y", i) for i in range(len(node.types)))
    graph = Graph((*sources, node), tuple(inputs), outputs, constants=constants)
    return graph.check(), inputs
