"""Every op × CPU backend × kernel × example × memory order: equal to the reference, to the bit.

Vulkan's, over storages and layouts, is test_vulkan_conformance.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from qtoolkit import backends
from qtoolkit.backends import BACKENDS, DEVICES
from qtoolkit.graph import Arg, Const, Graph, Node, Ref, leaves
from qtoolkit.kernel import RUNTIME, Kernel
from qtoolkit.layout import CHANNELS_LAST, CONTIGUOUS, Reps, RepSet, TensorRepr
from qtoolkit.ops import OPS, Example, OpSpec
from qtoolkit.ops.examples import one_node, types_of

Array = np.ndarray[Any, Any]
Pick = Callable[[RepSet], TensorRepr]

ON_CPU = tuple(b for b in BACKENDS if b not in DEVICES)
EXEMPLIFIED = tuple(name for name, spec in OPS.items() if any(True for _ in spec.examples()))
CODE_OPS = ("quantize", "dequantize", "requantize")
OURS = tuple(n for n in EXEMPLIFIED if n.startswith("q8_") or n in CODE_OPS)


def first(repset: RepSet) -> TensorRepr:
    return repset.reprs[0]


def last(repset: RepSet) -> TensorRepr:
    return repset.reprs[-1]


def chosen(reps: Reps, pick: Pick) -> dict[int, TensorRepr]:
    """The representation of every slot that demands one; tied slots share theirs."""
    slots = [i for i, r in enumerate(reps.inputs) if r is not None]
    slots += [-1 - j for j in range(len(reps.outputs))]
    found = {}
    for slot in slots:
        repset = reps.at(slot)
        assert repset is not None
        for tie in reps.ties:
            for other in tie if slot in tie else ():
                demanded = reps.at(other)
                repset = repset if demanded is None else repset & demanded
        assert len(repset), f"the tie of slot {slot} leaves no representation"
        found[slot] = pick(repset)
    return found


def fixed_output(reps: Reps, j: int) -> bool:
    """Whether the kernel knows where result j must lie: the repset is decided, or tied."""
    return reps.outputs[j].decided or any(-1 - j in tie for tie in reps.ties)


def lay(array: Array, order: TensorRepr) -> Array:
    """A copy of a logical array in the order of `order`."""
    if order == CONTIGUOUS or array.ndim < 3:
        return array.copy(order="C")
    assert order == CHANNELS_LAST
    return np.moveaxis(np.moveaxis(array, 1, -1).copy(order="C"), -1, 1)


def lies(array: Array, order: TensorRepr) -> bool:
    if order == CONTIGUOUS or array.ndim < 3:
        return bool(array.flags.c_contiguous)
    return bool(np.moveaxis(array, 1, -1).flags.c_contiguous)


def resolve(arg: Arg, graph: Graph) -> Any:
    if isinstance(arg, tuple):
        return tuple(resolve(a, graph) for a in arg)
    if isinstance(arg, Ref):
        return RUNTIME
    return graph.array(arg) if isinstance(arg, Const) else arg


def operands(
    node: Node, inputs: dict[str, Array], orders: dict[int, TensorRepr]
) -> Iterator[Array]:
    for slot, arg in enumerate(node.args):
        for leaf in leaves(arg):
            if isinstance(leaf, Ref):
                yield lay(inputs[leaf.node], orders[slot])


def results(value: Any) -> tuple[Array, ...]:
    return value if isinstance(value, tuple) else (value,)


def accepting(backend: str, graph: Graph) -> list[Kernel]:
    node = graph["y"]
    kernels = backends.kernels(backend).get(node.op, ())
    return [k for k in kernels if k.why_not(node, graph) is None]


def check(kernel: Kernel, spec: OpSpec, example: Example, pick: Pick) -> None:
    graph, inputs = one_node(spec, example)
    node = graph["y"]
    reps = kernel.reps(node, graph)
    orders = chosen(reps, pick)
    given = list(operands(node, dict(inputs), orders))
    before = [g.tobytes() for g in given]
    run = kernel.bind(tuple(resolve(a, graph) for a in node.args))
    wanted = results(spec.reference(*example.args))
    # Twice: a kernel may keep room between calls, but not values.
    for made in (results(run(*given)), results(run(*given))):
        assert len(made) == len(wanted) == len(node.types)
        for j, (got, want, kind) in enumerate(zip(made, wanted, node.types, strict=True)):
            assert (got.shape, got.dtype.name) == (kind.sizes, kind.dtype.value)
            assert want.shape == kind.sizes and want.dtype == got.dtype
            assert got.tobytes() == want.tobytes(), f"{int(np.sum(got != want))} cells differ"
            allowed = [orders[-1 - j]] if fixed_output(reps, j) else list(reps.outputs[j])
            assert any(lies(got, order) for order in allowed), f"strides {got.strides}"
    assert [g.tobytes() for g in given] == before, "the kernel changed its operand"


@pytest.mark.parametrize("op", EXEMPLIFIED)
@pytest.mark.parametrize("backend", ON_CPU)
def test_every_kernel_equals_the_reference_on_every_example(backend: str, op: str) -> None:
    for example in OPS[op].examples():
        graph, _ = one_node(OPS[op], example)
        kernels = accepting(backend, graph)
        assert kernels, f"backend {backend} has no kernel for {op}, example {example.label!r}"
        for kernel in kernels:
            for pick in (first, last):
                told = f"{backend}:{kernel.name}, {op}, {example.label!r}, {pick.__name__} order"
                try:
                    check(kernel, OPS[op], example, pick)
                except AssertionError as wrong:
                    raise AssertionError(f"{told}: {wrong}") from wrong


@pytest.mark.parametrize("op", OURS)
def test_numba_computes_quantized_ops_by_kernels_of_its_own(op: str) -> None:
    taken = set()
    for example in OPS[op].examples():
        graph, _ = one_node(OPS[op], example)
        taken.add(accepting("numba", graph)[0].name)
    assert taken - {"reference"}, f"numba leaves every example of {op} to the reference"


@pytest.mark.parametrize("op", EXEMPLIFIED)
def test_examples_have_labels_of_their_own_and_follow_the_schema(op: str) -> None:
    examples = list(OPS[op].examples())
    labels = [e.label for e in examples]
    assert len(set(labels)) == len(labels)
    assert all(len(e.args) == len(OPS[op].schema) for e in examples)
    assert all(types_of(OPS[op], e) for e in examples)


def test_every_op_on_codes_has_examples() -> None:
    lacking = [
        n
        for n, s in OPS.items()
        if (s.moves or n.startswith("q8_") or n in CODE_OPS) and n not in EXEMPLIFIED
    ]
    assert not lacking


def test_examples_are_the_same_each_time() -> None:
    for op in EXEMPLIFIED:
        for a, b in zip(OPS[op].examples(), OPS[op].examples(), strict=True):
            pairs = zip(leaves(tuple(a.args)), leaves(tuple(b.args)), strict=True)
            assert all(np.array_equal(p, q, equal_nan=_real(p)) for p, q in pairs)


def test_a_kernel_one_code_off_is_caught_and_so_is_one_that_lies_elsewhere() -> None:
    example = next(OPS["q8_clamp"].examples())

    def kernel(compute: Callable[[Array], Array]) -> Kernel:
        plain = Reps((RepSet([CONTIGUOUS]), None, None), (RepSet([CONTIGUOUS]),))
        return Kernel("fake", "q8_clamp", lambda args: compute, lambda node, graph: plain)

    def one_off(x: Array) -> Array:
        y = OPS["q8_clamp"].reference(x, *example.args[1:])
        y.flat[7] += 1
        return np.asarray(y)

    def elsewhere(x: Array) -> Array:
        return lay(OPS["q8_clamp"].reference(x, *example.args[1:]), CHANNELS_LAST)

    with pytest.raises(AssertionError, match="1 cells differ"):
        check(kernel(one_off), OPS["q8_clamp"], example, first)
    with pytest.raises(AssertionError, match="strides"):
        check(kernel(elsewhere), OPS["q8_clamp"], example, first)


def _real(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
