"""place: narrow every operand's repset to one representation, greedily, causes told."""

from collections.abc import Generator, Iterator
from dataclasses import replace

from qtoolkit.draft import Draft, Edit
from qtoolkit.errors import PlacementError
from qtoolkit.graph import Graph, Node, Ref, leaves
from qtoolkit.layout import CONTIGUOUS, Reps, RepSet, TensorRepr
from qtoolkit.passes.lower import Kernels, kernel_of
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.trace import Step

PLAIN = RepSet([CONTIGUOUS])


def place(
    graph: Graph,
    kernels: Kernels,
    rules: PlaceRules = PlaceRules(),  # noqa: B008
) -> Generator[Step, None, Graph]:
    """Decide nodes in order: the kernel's demand, the source's choice, readers, preference."""
    run = _Place(graph, kernels, rules)
    for node in graph.nodes:
        yield from run.node(node.name)
    return run.draft.finish()


class Slots(tuple[int, ...]):
    """Operands of a node by their slots, in words: 'input 0, result'."""

    def __str__(self) -> str:
        return ", ".join(
            f"input {i}" if i >= 0 else "result" + f" {-1 - i}" * (i < -1) for i in self
        )

    def __format__(self, spec: str) -> str:
        return str(self)


class _Place:
    """The state of one placement: the draft, and which step decided each result."""

    def __init__(self, graph: Graph, kernels: Kernels, rules: PlaceRules) -> None:
        self.graph, self.kernels, self.rules = graph, kernels, rules
        self.draft = Draft(graph)
        self.count = 0
        self.decided_by: dict[tuple[str, int], int] = {}

    def node(self, name: str) -> Generator[Step, None, None]:
        node = self.graph[name]
        reps = demanded(node, self.graph, self.kernels)
        yield self._set(name, reps, "demand", _every(reps), _demand_why(node), None)
        if self.rules.follow_source:
            yield from self._follow_sources(node)
        if self.rules.ask_readers:
            yield from self._ask_readers(node)
        yield from self._pick(name)

    def _follow_sources(self, node: Node) -> Generator[Step, None, None]:
        for slot, ref in operands(node):
            wanted = self._reps(node.name).at(slot)
            if wanted is None or wanted.decided:
                continue
            has = self.placed(ref)
            if has in wanted:
                why = ("{0}: {1}, which %{2} has", RepSet([has]), ref.node)
                cause = self.decided_by.get((ref.node, -1 - ref.index))
                yield self._narrow(node.name, slot, RepSet([has]), why, cause)

    def _ask_readers(self, node: Node) -> Generator[Step, None, None]:
        for index in range(len(node.types)):
            for reader, slot in readers(self.graph, Ref(node.name, index)):
                mine = self._reps(node.name).at(-1 - index)
                if mine is None or mine.decided:
                    break
                theirs = demanded(reader, self.graph, self.kernels).at(slot)
                common = mine if theirs is None else mine & theirs
                if 0 < len(common) < len(mine):
                    why = ("{0}: {1}, as %{2} reads it", common, reader.name)
                    yield self._narrow(node.name, -1 - index, common, why, None)

    def _pick(self, name: str) -> Generator[Step, None, None]:
        for slot in _every(self._reps(name)):
            repset = self._reps(name).at(slot)
            if repset is not None and not repset.decided:
                first = RepSet([repset.reprs[0]])
                why = ("{0}: {1}, the kernel's first choice", first)
                yield self._narrow(name, slot, first, why, None, "pick")

    def _narrow(
        self,
        name: str,
        slot: int,
        to: RepSet,
        why: tuple[object, ...],
        cause: int | None,
        kind: str = "narrow",
    ) -> Step:
        """Narrow a slot and all tied to it."""
        reps = self._reps(name)
        tied = {slot}.union(*(tie for tie in reps.ties if slot in tie))
        changed: list[int] = []
        for each in sorted(tied, key=lambda i: (i < 0, abs(i))):
            mine = reps.at(each)
            if mine is None:
                continue
            left = mine & to
            if not len(left):
                raise PlacementError(
                    f"%{name}: operand {each} admits {mine}, but it is tied to operand {slot}, "
                    f"which takes {to}; the kernel's ties contradict its repsets"
                )
            if left != mine:
                reps = reps.replaced(each, left)
                changed.append(each)
        return self._set(name, reps, kind, tuple(changed), why, cause)

    def _set(
        self,
        name: str,
        reps: Reps,
        kind: str,
        slots: tuple[int, ...],
        why: tuple[object, ...],
        cause: int | None,
    ) -> Step:
        edit = self.draft.apply(Edit(replace=(replace(self.draft[name], reps=reps),)))
        for slot in slots:
            repset = reps.at(slot)
            if repset is not None and repset.decided:
                self.decided_by[name, slot] = self.count
        self.count += 1
        return Step(edit, kind, name, (why[0], Slots(slots), *why[1:]), cause)

    def _reps(self, name: str) -> Reps:
        reps = self.draft[name].reps
        assert reps is not None
        return reps

    def placed(self, ref: Ref) -> TensorRepr:
        """The representation a value has, its node being placed already."""
        reps = self._reps(ref.node)
        return reps.outputs[ref.index].only


def demanded(node: Node, graph: Graph, kernels: Kernels) -> Reps:
    """What a node demands: its kernel's repsets, or plain contiguous where it has none."""
    kernel = kernel_of(node, kernels)
    if kernel is not None:
        return kernel.reps(node, graph)
    inputs = tuple(
        PLAIN if any(isinstance(leaf, Ref) for leaf in leaves(arg)) else None for arg in node.args
    )
    return Reps(inputs, tuple(PLAIN for _ in node.types))


def operands(node: Node) -> Iterator[tuple[int, Ref]]:
    """Every run-time operand with its schema position; the members of a list share theirs."""
    for slot, arg in enumerate(node.args):
        for leaf in leaves(arg):
            if isinstance(leaf, Ref):
                yield slot, leaf


def readers(graph: Graph, ref: Ref) -> Iterator[tuple[Node, int]]:
    """Who reads a value, and at which schema position."""
    for name in graph.users[ref.node]:
        for slot, read in operands(graph[name]):
            if read == ref:
                yield graph[name], slot


def _every(reps: Reps) -> tuple[int, ...]:
    inputs = tuple(i for i, r in enumerate(reps.inputs) if r is not None)
    return inputs + tuple(-1 - j for j in range(len(reps.outputs)))


def _demand_why(node: Node) -> tuple[object, ...]:
    if node.op == "input":
        return ("{0}: an input arrives contiguous",)
    if node.kernel is None:
        return ("{0}: no kernel, drawn as contiguous",)
    return ("{0}: as {1} demands", node.kernel)
