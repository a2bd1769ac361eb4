"""Random graphs in the recorded form of tests/peer/placement, to hold a placement against its peer.

Only structure, shapes and dtypes mean anything: nothing here is ever computed. No operand is left
without a representation: where an op takes textures alone, its operands fit the limits.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]

LIMITS = (
    (16384, 16384, 2048),
    (16384, 16384, 2048),
    (2048, 2048, 2048),
    (64, 64, 32),
    (16, 16, 8),
    (7, 5, 3),
)
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 33)
BIG = (65, 70, 130, 260, 2049, 9000)
PACKED_AXIS = {"W": -1, "H": -2, "C": -3}

UNARY = ("relu", "tanh", "sigmoid", "gelu", "exp", "neg", "hardswish", "sqrt")
BINARY = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "minimum")
COMPARED = ("eq.Tensor", "lt.Tensor", "ge.Tensor")
INT8 = (-128, 127, {"t": "torch.int8"})


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    shape: Shape
    dtype: str = "float32"

    @property
    def ref(self) -> dict[str, str]:
        return {"n": self.name}


def random_graph(seed: int, *, any_order: bool = False) -> dict[str, Any]:
    """Make the same graph for the same seed: {"texture_limits", "force_fp16", "pre": {"nodes"}}.

    any_order writes down the readers of every node, "users", in an order that is not the graph's.
    """
    maker = Maker(random.Random(seed))
    goal = maker.rng.randint(5, 60)
    for _ in range(20 * goal):
        if maker.n_ops >= goal:
            break
        maker.rng.choices(STEPS, WEIGHTS)[0](maker)
    graph = maker.finish()
    if any_order:
        nodes = graph["pre"]["nodes"]
        for node in nodes:
            users = [n["name"] for n in nodes if node["name"] in names_in(n["args"])]
            maker.rng.shuffle(users)
            node["users"] = users
    return graph


class Maker:
    """A graph as it grows. A step adds an op and its constants, or nothing where none fits."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.limits = rng.choice(LIMITS)
        self.n_ops = 0
        self.constants: list[tuple[Value, list[dict[str, Any]]]] = []
        self.packed: dict[str, Value] = {}
        self.inputs: list[dict[str, Any]] = []
        self.body: list[dict[str, Any]] = []
        self.values: list[Value] = []
        self.names: Counter[str] = Counter()
        for _ in range(rng.randint(1, 4)):
            self.input(self.shape(), rng.choices(("float32", "int8", "int32"), (8, 1, 1))[0])

    # Choosing.

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def size(self) -> int:
        return self.rng.choice(BIG if self.chance(0.05) else SIZES)

    def shape(self) -> Shape:
        rank = self.rng.choices(range(1, 7), (2, 4, 4, 12, 1, 1))[0]
        batch = (1,) if rank >= 4 and self.chance(0.7) else ()
        return batch + tuple(self.size() for _ in range(rank - len(batch)))

    def pick(
        self, dtype: str = "float32", fit: Callable[[Value], bool] = lambda v: len(v.shape) >= 1
    ) -> Value | None:
        """Choose a value, one of the last few more often than not."""
        found = [v for v in self.values if v.dtype == dtype and fit(v)]
        if not found:
            return None
        return self.rng.choice(found[-4:] if self.chance(0.65) else found)

    def fits(self, shape: Shape, layouts: str = "C") -> set[str]:
        """Those of the texture layouts W, H, C whose extents stay within the limits."""
        if len(shape) > 4:
            return set()
        batch = shape[0] if len(shape) == 4 else 1
        found = set()
        for layout in layouts:
            sizes = [1] * (3 - len(shape)) + list(shape)
            axis = PACKED_AXIS[layout]
            sizes[axis] = math.ceil(sizes[axis] / 4)
            extents = (sizes[-1], sizes[-2], sizes[-3] * batch)
            if all(e <= limit for e, limit in zip(extents, self.limits, strict=True)):
                found.add(layout)
        return found

    # Adding.

    def name(self, base: str) -> str:
        """Number names as fx does, so that a copy's name comes out alike."""
        self.names[base] += 1
        count = self.names[base] - 1
        return f"{base}_{count}" if count else base

    def node(self, kind: str, name: str, target: str, args: list[Any], val: Any) -> dict[str, Any]:
        return {"name": name, "op": kind, "target": target, "args": args, "val": val}

    def input(self, shape: Shape, dtype: str = "float32") -> Value:
        value = Value(self.name("x"), shape, dtype)
        self.inputs.append(self.node("placeholder", value.name, value.name, [], describe(value)))
        self.values.append(value)
        return value

    def constant(self, shape: Shape, dtype: str = "float32") -> Value:
        """A constant placeholder, a new one or one that others read too."""
        same = [c for c, _ in self.constants if (c.shape, c.dtype) == (shape, dtype)]
        if same and self.chance(0.5):
            return self.rng.choice(same)
        value = Value(self.name("p_const"), shape, dtype)
        entry = self.node("placeholder", value.name, value.name, [], describe(value))
        self.constants.append((value, [entry | {"tensorref": True}]))
        return value

    def weight(self, shape: Shape) -> Value:
        """What an op packs itself: a constant, seldom a value, which is placed as any other."""
        return self.operand(shape) if self.chance(0.07) else self.constant(shape)

    def prepacked(self, shape: Shape, dtype: str = "float32") -> Value:
        """A constant through et_vk::prepack, which stands right behind its placeholder."""
        source = self.constant(shape, dtype)
        if source.name not in self.packed:
            value = Value(self.name("et_vk_prepack_default"), shape, dtype)
            nodes = next(nodes for constant, nodes in self.constants if constant == source)
            nodes.append(
                self.node(
                    "call_function", value.name, "et_vk::prepack", [source.ref], describe(value)
                )
            )
            self.packed[source.name] = value
        return self.packed[source.name]

    def operand(self, shape: Shape, dtype: str = "float32") -> Value:
        """A second operand: a value, a prepacked constant, a constant as it is or a new input."""
        found = self.pick(dtype, lambda v: v.shape == shape)
        if found is not None and self.chance(0.7):
            return found
        how = self.rng.choices(("prepacked", "constant", "input"), (5, 2, 2))[0]
        made: Value = getattr(self, how)(shape, dtype)
        return made

    def emit(
        self,
        target: str,
        args: Sequence[Any],
        shape: Shape,
        dtype: str = "float32",
        kwargs: dict[str, Any] | None = None,
    ) -> Value:
        value = Value(self.name(fx_name(target)), shape, dtype)
        node = self.node("call_function", value.name, target, refs(args), describe(value))
        self.body.append(node | ({"kwargs": kwargs} if kwargs else {}))
        self.values.append(value)
        self.n_ops += 1
        return value

    def emit_many(
        self, target: str, args: Sequence[Any], outs: Sequence[tuple[Shape, str]], always: int = 1
    ) -> list[Value]:
        """An op of several outputs; the first `always` are read by a getitem, the rest perhaps."""
        name = self.name(fx_name(target))
        val = [{"shape": list(shape), "dtype": dtype} for shape, dtype in outs]
        self.body.append(self.node("call_function", name, target, refs(args), val))
        order = [i for i in range(len(outs)) if i < always or self.chance(0.5)]
        if self.chance(0.2):
            self.rng.shuffle(order)
        found = {i: self.emit("getitem", [{"n": name}, i], *outs[i]) for i in order}
        return [found[i] for i in sorted(found)]

    def finish(self) -> dict[str, Any]:
        read = {name for node in self.body for name in names_in(node["args"])}
        outs = [v for v in self.values if v.name not in read and self.chance(0.9)]
        outs += self.rng.sample(self.values, min(len(self.values), self.rng.randint(0, 2)))
        outs = outs or [self.values[-1]]
        if self.chance(0.15):
            outs.append(self.rng.choice(outs))
        output = self.node(
            "output", "output", "output", [refs(outs)], [describe(value) for value in outs]
        )
        constants = [node for _, nodes in self.constants for node in nodes]
        return {
            "texture_limits": list(self.limits),
            "force_fp16": self.chance(0.25),
            "pre": {"nodes": [*constants, *self.inputs, *self.body, output]},
        }


def describe(value: Value) -> dict[str, Any]:
    return {"shape": list(value.shape), "dtype": value.dtype}


def refs(args: Any) -> Any:
    if isinstance(args, Value):
        return args.ref
    return [refs(a) for a in args] if isinstance(args, (list, tuple)) else args


def names_in(args: Any) -> list[str]:
    if isinstance(args, dict):
        return [args["n"]] if "n" in args else []
    return [n for a in args for n in names_in(a)] if isinstance(args, list) else []


def fx_name(target: str) -> str:
    """aten::add.Tensor -> aten_add_tensor, et_vk::q8ta_relu -> et_vk_q8ta_relu_default."""
    if "::" not in target:
        return target
    space, _, rest = target.partition("::")
    packet, _, overload = rest.partition(".")
    return f"{space}_{packet}_{overload or 'default'}".lower().lstrip("_")


# Steps. Each adds one op (a quantized one with what it needs), or nothing if no value suits it.


def unary(m: Maker) -> None:
    if x := m.pick(fit=lambda v: True):
        m.emit(f"aten::{m.rng.choice(UNARY)}", [x], x.shape)


def binary(m: Maker) -> None:
    """Residual adds are binary ops on a value of long ago; sometimes both operands are one."""
    if x := m.pick():
        y = x if m.chance(0.15) else m.operand(x.shape)
        if m.chance(0.1):
            y = m.operand(x.shape[-1:])
        m.emit(f"aten::{m.rng.choice(BINARY)}", [y, x] if m.chance(0.2) else [x, y], x.shape)


def where(m: Maker) -> None:
    if x := m.pick():
        cond = m.pick("bool", lambda v: v.shape == x.shape)
        if cond is None:
            cond = m.emit(
                f"aten::{m.rng.choice(COMPARED)}", [x, m.operand(x.shape)], x.shape, "bool"
            )
        if m.chance(0.3):
            cond = m.emit("aten::logical_not", [cond], x.shape, "bool")
        m.emit("aten::where.self", [cond, x, m.operand(x.shape)], x.shape)


def softmax(m: Maker) -> None:
    if x := m.pick():
        m.emit("aten::_softmax", [x, m.rng.randrange(len(x.shape)), False], x.shape)


def fill(m: Maker) -> None:
    """Ops that read no tensor, or only its shape; keywords are no operands."""
    if m.chance(0.5):
        shape = m.shape()
        m.emit("aten::full", [list(shape), 0.5], shape, kwargs={"pin_memory": False})
    elif x := m.pick():
        keywords = {"memory_format": {"t": "torch.preserve_format"}}
        m.emit("aten::full_like", [x, 1.0], x.shape, kwargs=keywords)


def cat(m: Maker) -> None:
    x = m.pick()
    if x is None:
        return
    axis = m.rng.randrange(len(x.shape))
    n = m.rng.randint(2, 4)
    parts = [x] * 2 if m.chance(0.15) else [x] + [m.operand(x.shape) for _ in range(n - 1)]
    m.rng.shuffle(parts)
    m.emit("aten::cat", [parts, axis], resized(x.shape, axis, x.shape[axis] * len(parts)))


def split(m: Maker) -> None:
    x = m.pick(fit=lambda v: any(s >= 2 for s in v.shape))
    if x is None:
        return
    axis = m.rng.choice([i for i, s in enumerate(x.shape) if s >= 2])
    first = m.rng.randint(1, x.shape[axis] - 1)
    sizes = [first, x.shape[axis] - first]
    if sizes[1] >= 2 and m.chance(0.5):
        sizes[1:] = [1, sizes[1] - 1]
    outs = [(resized(x.shape, axis, s), "float32") for s in sizes]
    m.emit_many("aten::split_with_sizes_copy", [x, sizes, axis], outs, always=0)


def layer_norm(m: Maker) -> None:
    if x := m.pick(fit=lambda v: len(v.shape) >= 2):
        last = x.shape[-1:]
        stats = (*x.shape[:-1], 1)
        args = [x, list(last), m.constant(last), m.constant(last), 1e-5]
        outs = [(x.shape, "float32"), (stats, "float32"), (stats, "float32")]
        m.emit_many("aten::native_layer_norm", args, outs)


def group_norm(m: Maker) -> None:
    # The constants count: a vector of C is as wide as C.
    x = m.pick(
        fit=lambda v: (
            len(v.shape) in (3, 4) and bool(m.fits(v.shape)) and bool(m.fits(v.shape[1:2]))
        )
    )
    if x is None:
        return
    N, C, *rest = x.shape
    groups = m.rng.choice([g for g in (1, 2, C) if C % g == 0])
    args = [x, m.constant((C,)), m.constant((C,)), N, C, math.prod(rest), groups, 1e-5]
    outs = [(x.shape, "float32"), ((N, groups), "float32"), ((N, groups), "float32")]
    m.emit_many("aten::native_group_norm", args, outs)


def batch_norm(m: Maker) -> None:
    x = m.pick(fit=lambda v: len(v.shape) == 4 and bool(m.fits(v.shape)))
    if x is not None and m.fits(x.shape[1:2]):
        args = [x, *(m.constant(x.shape[1:2]) for _ in range(4)), 0.1, 1e-5]
        outs: list[tuple[Shape, str]] = [(x.shape, "float32"), ((0,), "float32"), ((0,), "float32")]
        m.emit_many("aten::_native_batch_norm_legit_no_training", args, outs)


def pool(m: Maker) -> None:
    x = m.pick(fit=lambda v: len(v.shape) == 4 and min(v.shape[2:]) >= 2 and bool(m.fits(v.shape)))
    if x is None:
        return
    shape = (*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)
    args = [x, [2, 2], [2, 2], [0, 0]]
    if m.chance(0.5):
        m.emit("aten::avg_pool2d", args, shape)
    else:
        outs = [(shape, "float32"), (shape, "int64")]
        m.emit_many("aten::max_pool2d_with_indices", args, outs)


def conv2d(m: Maker) -> None:
    x = m.pick(fit=lambda v: len(v.shape) == 4 and v.shape[0] == 1 and bool(m.fits(v.shape)))
    if x is None:
        return
    N, C, H, W = x.shape
    O = C if m.chance(0.4) else m.size()
    shape = (N, O, H, W)
    if not m.fits(shape):
        return
    bias = m.constant((O,)) if m.chance(0.8) else None
    weight = m.weight((O, C, 3, 3))
    args = [x, weight, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1]
    if m.chance(0.3):
        m.emit("et_vk::conv_with_clamp", [*args, 0.0, 6.0], shape)
    else:
        m.emit("aten::convolution", args, shape)


def conv1d(m: Maker) -> None:
    """Point-wise ones are packed by height, others by channels."""
    kernel = m.rng.choice((1, 3))
    layout = "H" if kernel == 1 else "C"
    x = m.pick(fit=lambda v: len(v.shape) == 3)
    if x is None:
        return
    shape = (x.shape[0], m.size(), x.shape[2])
    if m.fits(x.shape, layout) and m.fits(shape, layout):
        weight = m.constant((shape[1], x.shape[1], kernel))
        args = [x, weight, m.constant((shape[1],)), [1], [kernel // 2], [1], False, [0], 1]
        m.emit("aten::convolution", args, shape)


def linear(m: Maker) -> None:
    if x := m.pick():
        O = m.size()
        bias = m.constant((O,)) if m.chance(0.7) else None
        weight = m.weight((O, x.shape[-1]))
        m.emit("aten::linear", [x, weight, bias], (*x.shape[:-1], O))


def matmul(m: Maker) -> None:
    x = m.pick(fit=lambda v: len(v.shape) in (2, 3))
    if x is None:
        return
    K, N = x.shape[-1], m.size()
    shape = (*x.shape[:-1], N)
    if len(x.shape) == 3:
        m.emit("aten::bmm", [x, m.operand((x.shape[0], K, N))], shape)
    elif m.chance(0.3):
        m.emit("aten::addmm", [m.constant((N,)), x, m.constant((K, N))], shape)
    else:
        m.emit("aten::mm", [x, m.constant((K, N)) if m.chance(0.5) else m.operand((K, N))], shape)


def permute(m: Maker) -> None:
    if x := m.pick():
        order = list(range(len(x.shape)))
        m.rng.shuffle(order)
        shape = tuple(x.shape[i] for i in order)
        both = m.fits(x.shape, "WHC") & m.fits(shape, "WHC")
        name = "aten::permute" if both and m.chance(0.1) else "aten::permute_copy"
        m.emit(name, [x, order], shape)


def view(m: Maker) -> None:
    x = m.pick("int8" if m.chance(0.15) else "float32")
    if x is None:
        return
    shape: Shape = (math.prod(x.shape),)
    kind = m.rng.randrange(4)
    if kind == 0 and len(x.shape) >= 2:
        shape = (math.prod(x.shape[:-1]), x.shape[-1])
    elif kind == 1 and len(x.shape) < 6:
        shape = (1, *x.shape)
    elif kind == 2 and len(x.shape) >= 3:
        shape = (*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])
    m.emit("aten::view_copy", [x, list(shape)], shape, x.dtype)


def clone(m: Maker) -> None:
    x = m.pick(m.rng.choices(("float32", "int8", "int32", "bool"), (6, 2, 1, 1))[0])
    if x:
        m.emit(m.rng.choice(("aten::clone", "aten::alias_copy")), [x], x.shape, x.dtype)


def reshape(m: Maker) -> None:
    """Slices, selections, expansions, padding: whatever takes any float storage."""
    x = m.pick(fit=lambda v: len(v.shape) >= 2)
    if x is None:
        return
    axis = m.rng.randrange(len(x.shape))
    size = x.shape[axis]
    without = x.shape[:axis] + x.shape[axis + 1 :]
    kind = m.rng.choice(("slice", "slice", "select", "unsqueeze", "squeeze", "repeat", "pad"))
    if kind == "slice":
        end = m.rng.randint(1, size)
        shape = resized(x.shape, axis, end)
        m.emit("aten::slice_copy.Tensor", [x, axis, 0, end], shape)
    elif kind == "select":
        m.emit("aten::select_copy.int", [x, axis, size - 1], without)
    elif kind == "unsqueeze" and len(x.shape) < 6:
        m.emit("aten::unsqueeze_copy", [x, axis], (*x.shape[:axis], 1, *x.shape[axis:]))
    elif kind == "squeeze" and size == 1:
        m.emit("aten::squeeze_copy.dims", [x, [axis]], without)
    elif kind == "repeat" and size == 1:
        n = m.size()
        repeats = [n if i == axis else 1 for i in range(len(x.shape))]
        m.emit("aten::repeat", [x, repeats], resized(x.shape, axis, n))
    elif kind == "pad":
        shape = resized(x.shape, len(x.shape) - 1, x.shape[-1] + 3)
        m.emit("aten::constant_pad_nd", [x, [1, 2], 0.0], shape)


def channels_only(m: Maker) -> None:
    x = m.pick(fit=lambda v: len(v.shape) == 4 and bool(m.fits(v.shape)))
    if x is None:
        return
    up = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    kind = m.rng.choice(("nearest", "bilinear", "flip", "index_select"))
    if kind == "nearest" and m.fits(up):
        m.emit("aten::upsample_nearest2d.vec", [x, None, [2.0, 2.0]], up)
    elif kind == "bilinear" and m.fits(up):
        m.emit("aten::upsample_bilinear2d.vec", [x, list(up[2:]), False, None], up)
    elif kind == "flip":
        m.emit("aten::flip", [x, [2]], x.shape)
    elif kind == "index_select":
        n = m.rng.randint(1, min(4, *m.limits))
        shape = resized(x.shape, 1, n)
        if m.fits(shape) and m.fits((n,)):
            m.emit("aten::index_select", [x, 1, m.operand((n,), "int32")], shape)


def grid_sample(m: Maker) -> None:
    """Arguments of two storages; sometimes one value is both."""
    x = m.pick(fit=lambda v: len(v.shape) == 4 and bool(m.fits(v.shape)))
    if x is None:
        return
    if x.shape[3] > 2 and m.chance(0.3):
        x = m.emit("aten::slice_copy.Tensor", [x, 3, 0, 2], resized(x.shape, 3, 2))
    H, W = m.rng.choice(SIZES), m.rng.choice(SIZES)
    grid = (x.shape[0], H, W, 2)
    itself = x.shape[3] == 2
    if itself:
        grid = x.shape
    shape = (*x.shape[:2], *grid[1:3])
    if m.fits(shape):
        y = x if itself and m.chance(0.7) else m.operand(grid)
        m.emit("aten::grid_sampler_2d", [x, y, 0, 0, False], shape)


def pixel_shuffle(m: Maker) -> None:
    if x := m.pick(fit=lambda v: len(v.shape) == 4 and v.shape[1] % 4 == 0):
        N, C, H, W = x.shape
        m.emit("aten::pixel_shuffle", [x, 2], (N, C // 4, 2 * H, 2 * W))


def reduce(m: Maker) -> None:
    """By dims and keepdim: textures, a buffer too, or a texture packed by what is not reduced."""
    x = m.pick(fit=lambda v: 1 <= len(v.shape) <= 4)
    if x is None:
        return
    rank = len(x.shape)
    dims: list[int] | None = sorted(m.rng.sample(range(rank), min(rank, m.rng.choice((1, 1, 2)))))
    if rank <= 2 and m.chance(0.1):
        dims = None
    keep = m.chance(0.7)
    gone = set(range(rank) if dims is None else dims)
    shape = tuple(1 if i in gone else s for i, s in enumerate(x.shape) if keep or i not in gone)
    by_row = gone == {rank - 1} or (dims is None and rank == 2 and keep)
    whcn = {rank - 1 - i for i in gone}
    layouts = "WHC" if keep else ""
    if len(gone) == 2 and not by_row:
        layouts = "WHC"[min({0, 1, 2} - whcn)]
    if not by_row and not (m.fits(x.shape, layouts) & m.fits(shape, layouts)):
        return
    name = m.rng.choice(("mean.dim", "sum.dim_IntList", "amax") if dims else ("sum.dim_IntList",))
    written = [d - rank if m.chance(0.5) else d for d in dims] if dims else dims
    m.emit(f"aten::{name}", [x, written, keep] if keep or m.chance(0.5) else [x, written], shape)


def to_copy(m: Maker) -> None:
    source = m.rng.choice(("float32", "float32", "int32", "int64", "float16"))
    target = m.rng.choice(("float32", "int32", "int64", "float16"))
    if x := m.pick(source):
        keywords = {"dtype": {"t": f"torch.{target}"}}
        m.emit("aten::_to_copy", [x], x.shape, target, keywords)


def index(m: Maker) -> None:
    """self[index] and self[:, index]; an index behind None is seen by no placement."""
    if x := m.pick():
        axis = m.rng.randrange(min(2, len(x.shape)))
        n = m.rng.choice(SIZES)
        idx = m.operand((n,), m.rng.choice(("int32", "int64")))
        m.emit("aten::index.Tensor", [x, [None] * axis + [idx]], resized(x.shape, axis, n))


def gather(m: Maker) -> None:
    if x := m.pick():
        idx = m.operand(x.shape, "int64")
        m.emit("aten::gather", [x, 0, idx], x.shape)


def embedding(m: Maker) -> None:
    idx = m.pick(m.rng.choice(("int32", "int64")), lambda v: 1 <= len(v.shape) <= 3)
    if idx is None:
        idx = m.input((m.rng.choice(SIZES),), "int64")
    width = m.size()
    m.emit("aten::embedding", [m.constant((100, width)), idx], (*idx.shape, width))


def norm_and_rotate(m: Maker) -> None:
    if x := m.pick(fit=lambda v: len(v.shape) >= 2):
        m.emit("et_vk::rms_norm", [x, m.constant(x.shape[-1:]), 1e-6], x.shape)
        if len(x.shape) == 4 and x.shape[3] % 2 == 0:
            table = (x.shape[1], x.shape[3] // 2)
            args = [x, m.operand(x.shape), m.operand(table), m.operand(table)]
            outs = [(x.shape, "float32"), (x.shape, "float32")]
            m.emit_many("et_vk::apply_rotary_emb", args, outs)


def resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


# Quantization.


def quantize(m: Maker) -> None:
    if x := m.pick():
        m.emit("quantized_decomposed::quantize_per_tensor", [x, 0.05, 3, *INT8], x.shape, "int8")


def dequantize(m: Maker) -> None:
    if q := m.pick("int8"):
        m.emit("quantized_decomposed::dequantize_per_tensor", [q, 0.05, 3, *INT8], q.shape)


def quantize_per_channel(m: Maker) -> None:
    if x := m.pick(fit=lambda v: len(v.shape) >= 2):
        C = x.shape[1:2]
        args = [m.prepacked(C), m.prepacked(C, "int64"), 1, *INT8]
        q = m.emit("quantized_decomposed::quantize_per_channel", [x, *args], x.shape, "int8")
        if m.chance(0.5):
            m.emit("quantized_decomposed::dequantize_per_channel", [q, *args], x.shape)


def quantize_dynamically(m: Maker) -> None:
    """choose_qparams of each kind, its two outputs, and the quantize that reads them."""
    x = m.pick(fit=lambda v: len(v.shape) >= 2)
    if x is None:
        return
    kind = m.rng.choice(("tensor", "token", "affine"))
    rows: Shape = (*x.shape[:-1], 1)
    int8 = {"t": "torch.int8"}
    if kind == "tensor":
        args: list[Any] = [x, -128, 127, 1e-5, int8]
        outs: list[tuple[Shape, str]] = [((1,), "float32"), ((1,), "int64")]
        s, z = m.emit_many("quantized_decomposed::choose_qparams.tensor", args, outs, always=2)
        name = "quantized_decomposed::quantize_per_tensor.tensor"
        m.emit(name, [x, s, z, *INT8], x.shape, "int8")
    elif kind == "token":
        outs = [(rows, "float32"), (rows, "int64")]
        name = "quantized_decomposed::choose_qparams_per_token_asymmetric"
        s, z = m.emit_many(name, [x, int8], outs, always=2)
        q = m.emit("quantized_decomposed::quantize_per_token", [x, s, z, *INT8], x.shape, "int8")
        if m.chance(0.5):
            args = [q, s, z, *INT8, {"t": "torch.float32"}]
            m.emit("quantized_decomposed::dequantize_per_token", args, x.shape)
    elif m.fits(rows[:-1], "W"):
        block = [1] * (len(x.shape) - 1) + [x.shape[-1]]
        outs = [(rows[:-1], "float32"), (rows[:-1], "int8")]
        args = [x, "ASYMMETRIC", block, int8, -128, 127]
        s, z = m.emit_many("torchao::choose_qparams_affine", args, outs, always=2)
        if m.chance(0.5):
            m.emit("torchao::quantize_affine", [x, block, s, z, *INT8[::-1]], x.shape, "int8")
        else:
            O, K = m.size(), x.shape[-1]
            weights = [m.constant((O, K), "int8"), m.constant((1, O)), m.constant((1, O))]
            name = "et_vk::linear_dq8ca_q4gsw"
            m.emit(name, [x, s, z, *weights, K, None], (*x.shape[:-1], O))


def int8_elementwise(m: Maker) -> None:
    q = m.pick("int8")
    if q is None:
        return
    if m.chance(0.4):
        m.emit("et_vk::q8ta_relu", [q, 0.05, 3, 0.05, 3], q.shape, "int8")
        return
    other = q if m.chance(0.2) else m.pick("int8", lambda v: v.shape == q.shape) or q
    args = [q, other, 0.05, 3, 0.05, 3, 0.1, 0, 1.0]
    m.emit("et_vk::q8ta_add", args, q.shape, "int8")


def int8_conv(m: Maker) -> None:
    q = m.pick("int8", lambda v: len(v.shape) == 4)
    if q is None:
        x = m.pick(fit=lambda v: len(v.shape) == 4) or m.input((1, 8, 12, 12))
        q = m.emit(
            "quantized_decomposed::quantize_per_tensor", [x, 0.05, 3, *INT8], x.shape, "int8"
        )
    N, C, H, W = q.shape
    kind = m.rng.choice(("conv2d", "conv2d_pw", "conv2d_dw", "conv2d_transposed", "shuffle"))
    if kind == "shuffle":
        if C % 4 == 0:
            shape = (N, C // 4, 2 * H, 2 * W)
            m.emit("et_vk::q8ta_pixel_shuffle", [q, 0.05, 3, 20.0, 3, 2], shape, "int8")
        return
    O = C if kind == "conv2d_dw" or m.chance(0.5) else m.size()
    Kh = 1 if kind == "conv2d_pw" else 3
    weights = [
        m.constant((O, Kh * Kh * C), "int8"),
        m.constant((O,), "int32"),
        m.constant((O,)),
    ]
    bias = m.constant((O,)) if m.chance(0.8) else None
    window = [[Kh, Kh], [1, 1], [Kh // 2, Kh // 2]]
    window += [[0, 0]] if kind == "conv2d_transposed" else []
    groups = C if kind == "conv2d_dw" else 1
    args = [q, 0.05, 3, *weights, 0.1, 0, bias, *window, [1, 1], groups, "relu"]
    m.emit(f"et_vk::q8ta_{kind}", args, (N, O, H, W), "int8")


def int8_linear(m: Maker) -> None:
    q = m.pick("int8", lambda v: len(v.shape) >= 2)
    if q is None:
        return
    O, K = m.size(), q.shape[-1]
    weights = [m.constant((O, K), "int8"), m.constant((O,), "int32"), m.constant((O,))]
    bias = m.constant((O,)) if m.chance(0.5) else None
    shape = (*q.shape[:-1], O)
    if m.chance(0.3):
        m.emit("et_vk::linear_q8ta_q8csw", [q, 0.05, 3, *weights, bias], shape)
        return
    name = "q8ta_linear_gemv" if q.shape[-2] == 1 or m.chance(0.2) else "q8ta_linear"
    m.emit(f"et_vk::{name}", [q, 0.05, 3, *weights, 0.1, 0, bias, "none"], shape, "int8")


def unread_input(m: Maker) -> None:
    m.input(m.shape(), m.rng.choices(("float32", "int8"), (3, 1))[0])


WEIGHTED: dict[Callable[[Maker], None], int] = {
    unary: 12,
    binary: 14,
    where: 3,
    softmax: 2,
    fill: 2,
    cat: 6,
    split: 4,
    layer_norm: 3,
    group_norm: 3,
    batch_norm: 1,
    pool: 4,
    conv2d: 8,
    conv1d: 2,
    linear: 6,
    matmul: 4,
    permute: 6,
    view: 6,
    clone: 3,
    reshape: 6,
    channels_only: 3,
    grid_sample: 3,
    pixel_shuffle: 1,
    reduce: 6,
    to_copy: 3,
    index: 4,
    gather: 1,
    embedding: 2,
    norm_and_rotate: 2,
    quantize: 6,
    dequantize: 5,
    quantize_per_channel: 2,
    quantize_dynamically: 3,
    int8_elementwise: 5,
    int8_conv: 7,
    int8_linear: 3,
    unread_input: 1,
}
STEPS = tuple(WEIGHTED)
WEIGHTS = tuple(WEIGHTED.values())
