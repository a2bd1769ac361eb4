"""Every op × kernel × storage × layout × example on Vulkan: equal to the reference, to the bit.

All of it runs under validation with synchronization checks, which must stay silent. The examples of
an op run in one graph per example, which holds a node for each combination of representations.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from qtoolkit.backends.vulkan import KERNELS, Device, load_on
from qtoolkit.backends.vulkan.dispatch import FEATURES, Site
from qtoolkit.backends.vulkan.recording import Recording
from qtoolkit.backends.vulkan.tensors import Kind
from qtoolkit.backends.vulkan.variants import variants
from qtoolkit.graph import Arg, DType, Graph, Node, Ref, map_leaves
from qtoolkit.kernel import Kernel
from qtoolkit.layout import Layout, Reps, RepSet, Storage, TensorRepr
from qtoolkit.ops import OPS, Example, OpSpec
from qtoolkit.ops.examples import one_node

Array = np.ndarray[Any, Any]
EXEMPLIFIED = tuple(name for name, spec in OPS.items() if any(True for _ in spec.examples()))
BY_SHADERS = tuple(op for op in EXEMPLIFIED if len(KERNELS[op]) > 1)
WITH_FEATURES = ("q8_conv2d", "q8_conv1d", "q8_linear", "q8_matmul")
# What the reasons speak of for which an example is left to the host.
HOST_WHYS = ("empty", "rank 5", "not aligned", "no batch", "a vector")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device(validation=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain_device() -> Iterator[Device]:
    """A device whose optional features are left unused."""
    with Device(validation=True, plain=True) as opened:
        yield opened


def combinations(reps: Reps) -> Iterator[Reps]:
    """Every choice of one representation per operand and result; tied ones share theirs."""
    slots = [i for i, r in enumerate(reps.inputs) if r is not None]
    slots += [-1 - j for j in range(len(reps.outputs))]
    groups: dict[int, tuple[int, ...]] = {}
    for slot in slots:
        tie = next((t for t in reps.ties if slot in t), (slot,))
        groups[min(tie)] = tie
    choices = []
    for tie in groups.values():
        common = reps.at(tie[0])
        for other in tie[1:]:
            demanded = reps.at(other)
            assert common is not None and demanded is not None
            common = common & demanded
        assert common is not None and len(common), f"slots {tie} share no representation"
        choices.append(tuple(common))
    for choice in product(*choices):
        decided = reps
        for tie, where in zip(groups.values(), choice, strict=True):
            for slot in tie:
                decided = decided.replaced(slot, RepSet([where]))
        yield decided


def everywhere(node: Node, graph: Graph, kernel: Kernel) -> Graph:
    """A graph that computes the node once for each combination, inputs given in each form."""
    inputs: dict[str, Node] = {}
    made: list[Node] = []
    for i, reps in enumerate(combinations(kernel.reps(node, graph))):
        args: list[Arg] = []
        for slot, arg in enumerate(node.args):
            repset = reps.at(slot)

            def there(leaf: Arg, repset: RepSet | None = repset) -> Arg:
                if not isinstance(leaf, Ref) or repset is None:
                    return leaf
                name = f"{leaf.node}.{repset.only}"
                source = replace(graph[leaf.node], name=name, reps=Reps((), (repset,)))
                inputs[name] = source
                return Ref(name, leaf.index)

            args.append(map_leaves(arg, there))
        made.append(
            replace(node, name=f"y{i}", args=tuple(args), kernel=f"vulkan:{kernel.name}", reps=reps)
        )
    nodes = (*inputs.values(), *made)
    outputs = tuple(Ref(n.name) for n in made)
    return Graph(nodes, tuple(inputs), outputs, constants=graph.constants).check()


def check(device: Device, kernel: Kernel, spec: OpSpec, example: Example) -> int:
    """How many combinations ran, all of them equal to the reference."""
    one, values = one_node(spec, example)
    graph = everywhere(one["y"], one, kernel)
    made = [n for n in graph.nodes if n.op != "input"]
    given: Mapping[str, Array] = {
        n.name: values[n.name.partition(".")[0]] for n in graph.nodes if n.op == "input"
    }
    wanted = spec.reference(*example.args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    engine = load_on(device, graph, dict.fromkeys((n.name for n in made), kernel))
    try:
        # Twice: memory is used again, and values must not be.
        for found, seconds in (engine.run(given), engine.run(given)):
            for node in made:
                for j, want in enumerate(wanted):
                    got = found[node.name if j == 0 else f"{node.name}#{j}"]
                    assert (got.shape, got.dtype) == (want.shape, want.dtype)
                    assert got.tobytes() == want.tobytes(), (
                        f"{node.reps}: {int(np.sum(got != want))} of {want.size} cells differ"
                    )
                assert seconds[node.name] >= 0
    finally:
        engine.close()
    return len(made)


def accepting(op: str, example: Example) -> list[Kernel]:
    """The shader kernels that take an example."""
    graph, _ = one_node(OPS[op], example)
    return [k for k in KERNELS[op] if k.name != "host" and k.why_not(graph["y"], graph) is None]


def run_all(device: Device, op: str) -> set[str]:
    """Run every example of an op by every kernel that takes it; the kernels that ran."""
    ran = set()
    for example in OPS[op].examples():
        for kernel in accepting(op, example):
            ran.add(kernel.name)
            try:
                check(device, kernel, OPS[op], example)
            except AssertionError as wrong:
                told = f"{kernel.name}, {op}, {example.label!r}"
                raise AssertionError(f"{told}: {wrong}") from wrong
    assert device.messages == []
    return ran


@pytest.mark.parametrize("op", BY_SHADERS)
def test_shaders_equal_the_reference_in_every_representation(device: Device, op: str) -> None:
    ran = run_all(device, op)
    assert ran == {k.name for k in KERNELS[op]} - {"host"}, "a kernel takes no example"


@pytest.mark.parametrize("op", WITH_FEATURES)
def test_packed_words_alone_give_the_same(plain_device: Device, op: str) -> None:
    assert run_all(plain_device, op)


def test_lavapipe_has_the_features_that_shaders_can_use(device: Device) -> None:
    assert not device.info.name.startswith("llvmpipe") or device.features == set(FEATURES)


def test_every_exemplified_op_on_codes_has_a_shader() -> None:
    on_codes = [n for n in EXEMPLIFIED if "." not in n or OPS[n].moves]
    # Only lowering for Cadence makes ops with channels last; here they run on the host.
    assert set(on_codes) - set(BY_SHADERS) == {"q8_conv2d_nhwc", "q8_conv1d_nlc", "im2row"}


def test_examples_left_to_the_host_are_empty_vectors_of_rank_5_or_misaligned() -> None:
    for op in BY_SHADERS:
        for example in OPS[op].examples():
            if not accepting(op, example):
                graph, _ = one_node(OPS[op], example)
                whys = " ".join(str(k.why_not(graph["y"], graph)) for k in KERNELS[op][:-1])
                assert any(t in whys for t in HOST_WHYS), f"{op} {example.label}: {whys}"


def test_an_op_of_the_host_runs_between_submissions(device: Device) -> None:
    example = Example(
        "rank 5", (np.arange(48, dtype=np.int8).reshape(2, 3, 2, 2, 2), (4, 3, 2, 1, 0))
    )
    spec = OPS["aten.permute.default"]
    graph, values = one_node(spec, example)
    host = KERNELS["aten.permute.default"][-1]
    node = replace(graph["y"], kernel="vulkan:host", reps=host.reps(graph["y"], graph))
    placed = replace(graph, nodes=(*graph.nodes[:-1], node))
    engine = load_on(device, placed, {"y": host})
    assert np.array_equal(engine.run(values)[0]["y"], spec.reference(*example.args))
    engine.close()


STORED_EACH_WAY = (
    "q8_conv2d", "q8_add", "q8_avg_pool2d", "aten.max_pool2d.default", "aten.pad.default",
    "quantize", "dequantize",
)  # fmt: skip


@pytest.mark.parametrize("op", STORED_EACH_WAY)
def test_the_minimum_claims_are_declared_in_both_storages(op: str) -> None:
    for kernel in KERNELS[op][:-1]:
        for example in OPS[op].examples():
            if kernel in accepting(op, example):
                graph, _ = one_node(OPS[op], example)
                reps = kernel.reps(graph["y"], graph)
                repset = reps.at(0)
                assert repset is not None
                for demanded in (repset, reps.outputs[0]):
                    x = graph.type_of(graph["y"].args[0])
                    ints = demanded is repset and x is not None and x.dtype is DType.INT32
                    assert ints or {r.storage for r in demanded} == set(Storage)


def test_scale_and_input_of_quantize_lie_in_either_storage_independently() -> None:
    for op in ("quantize", "dequantize"):
        example = next(OPS[op].examples())
        graph, _ = one_node(OPS[op], example)
        reps = KERNELS[op][0].reps(graph["y"], graph)
        pairs = {(r.at(0), r.at(1)) for r in combinations(reps)}
        stored = {(x.only.storage, s.only.storage) for x, s in pairs if x and s}
        assert stored == set(product(Storage, Storage))
        zero_point = reps.at(2)
        assert zero_point is not None and {r.storage for r in zero_point} == {Storage.BUFFER}


def test_every_pair_of_representations_has_its_copy(device: Device) -> None:
    every = {
        TensorRepr(s, m) for s in Storage for m in (Layout.WIDTH, Layout.HEIGHT, Layout.CHANNELS)
    }
    copy = KERNELS["transition"][0]
    for example in OPS["transition"].examples():
        graph, _ = one_node(OPS["transition"], example)
        if graph["y"].type.rank == 4 and copy in accepting("transition", example):
            pairs = {(c.at(0), c.outputs[0]) for c in combinations(copy.reps(graph["y"], graph))}
            assert {(x.only, y.only) for x, y in pairs if x} == set(product(every, every))


def test_validation_hears_a_planted_missing_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((1, 4, 3, 3), np.int8)
    one, _ = one_node(OPS["q8_clamp"], Example("", (x, -5, 5)))
    kernel = KERNELS["q8_clamp"][0]
    reps = next(combinations(kernel.reps(one["y"], one)))
    first = replace(one["y"], reps=reps)
    second = replace(first, name="z", args=(Ref("y"), -5, 5))
    source = replace(one["x"], reps=Reps((), reps.outputs))
    graph = Graph((source, first, second), ("x",), (Ref("z"),)).check()

    def messages() -> list[str]:
        with Device(validation=True) as opened:
            load_on(opened, graph, {"y": kernel, "z": kernel}).run({"x": x})
            return list(opened.messages)

    assert messages() == []
    monkeypatch.setattr(Recording, "between_dispatches", lambda self: None)
    assert any("READ_AFTER_WRITE" in told or "READ-AFTER-WRITE" in told for told in messages())


def test_the_number_of_pipelines_stays_small(device: Device, plain_device: Device) -> None:
    made = len(device.pipelines.made) + len(plain_device.pipelines.made)
    assert made < 300, f"{made} pipelines; cold, each costs up to a second"


def test_exactly_the_variants_that_a_wheel_ships_are_asked_for() -> None:
    asked: set[tuple[str, ...]] = set()
    for op in BY_SHADERS:
        for example in OPS[op].examples():
            for kernel in accepting(op, example):
                one, _ = one_node(OPS[op], example)
                graph = everywhere(one["y"], one, kernel)
                for node in graph.nodes:
                    bound = kernel.bind(Site(node, graph)) if node.op != "input" else ()
                    for dispatch in bound if isinstance(bound, tuple) else ():
                        for features in ((), FEATURES):
                            told = sorted(dispatch.defines(features).items())
                            asked.add((dispatch.shader, *map(str, told)))
    listed = {(shader, *map(str, sorted(defines.items()))) for shader, defines in variants()}
    assert asked <= listed
    # Moving int32 is possible, but no example does it.
    kind = str(("X_KIND", int(Kind.INTS)))
    assert listed - asked <= {v for v in listed if v[0] == "gather" and kind in v}


def test_a_wrong_code_would_be_seen(device: Device) -> None:
    example = next(OPS["q8_clamp"].examples())
    wrong = replace(OPS["q8_clamp"], reference=lambda x, low, high: np.clip(x, low, high - 1))
    with pytest.raises(AssertionError, match="cells differ"):
        check(device, KERNELS["q8_clamp"][0], wrong, example)
