"""place: narrow every operand's repset to one representation, greedily, causes told."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import product

from qtoolkit.draft import Draft, Edit
from qtoolkit.errors import PlacementError
from qtoolkit.graph import DType, Graph, Node, Ref, TensorType, leaves
from qtoolkit.layout import CONTIGUOUS, Reps, RepSet, Storage, TensorRepr, texture_extents
from qtoolkit.passes.lower import Kernels, kernel_of
from qtoolkit.passes.rules import PlaceRules
from qtoolkit.trace import Step

PLAIN = RepSet([CONTIGUOUS])
MIXED, BUFFER, TEXTURE = STORAGES = ("mixed", "buffer", "texture")


def place(
    graph: Graph,
    kernels: Kernels,
    rules: PlaceRules = PlaceRules(),  # noqa: B008
    storage: str = MIXED,
    texture_limit: int | None = None,
) -> Generator[Step, None, Graph]:
    """Decide nodes in order: the kernel's demand, the source's choice, readers, preference.

    storage: 'mixed' leaves the choice to the kernels, 'buffer' keeps all in buffers, 'texture' puts
    every operand into a texture that has a texture representation; what stays in a buffer then is a
    step of kind 'buffer' with its reason. texture_limit: the largest extent of a 3D texture.
    """
    run = _Place(graph, kernels, rules, Bounds(storage, texture_limit))
    for node in graph.nodes:
        yield from run.node(node.name)
    return run.draft.finish()


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is ruled out whatever a kernel admits: by the storage asked for, by the device."""

    storage: str = MIXED
    texture_limit: int | None = None

    def of(self, repset: RepSet, kind: TensorType) -> RepSet:
        """The representations of a repset that are left; never none of them."""
        fitting = RepSet(r for r in repset if self._over(r, kind) is None)
        if not len(fitting):
            return repset
        wanted = {BUFFER: Storage.BUFFER, TEXTURE: Storage.TEXTURE_3D}.get(self.storage)
        left = RepSet(r for r in fitting if wanted is None or r.storage is wanted)
        return left if len(left) else fitting

    def too_large(self, repset: RepSet, kind: TensorType) -> str | None:
        """The extents that rule textures out, and the limit they break."""
        return next((why for r in repset if (why := self._over(r, kind))), None)

    def _over(self, r: TensorRepr, kind: TensorType) -> str | None:
        if r.storage is not Storage.TEXTURE_3D or self.texture_limit is None:
            return None
        extents = texture_extents(kind.sizes, r.layout)
        if max(extents) <= self.texture_limit:
            return None
        w, h, d = extents
        return f"a texture of {w}×{h}×{d} exceeds the device's limit of {self.texture_limit}"


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

    def __init__(self, graph: Graph, kernels: Kernels, rules: PlaceRules, bounds: Bounds) -> None:
        self.graph, self.kernels, self.rules, self.bounds = graph, kernels, rules, bounds
        self.draft = Draft(graph)
        self.count = 0
        self.decided_by: dict[tuple[str, int], int] = {}

    def node(self, name: str) -> Generator[Step, None, None]:
        node = self.graph[name]
        admitted = demanded(node, self.graph, self.kernels)
        reps = self._bounded(node, admitted)
        yield self._set(name, admitted, "demand", _every(admitted), _demand_why(node), None)
        yield from self._rule_out(node, admitted, reps)
        if self.rules.follow_source:
            yield from self._follow_sources(node)
        if self.rules.ask_readers:
            yield from self._ask_readers(node)
        yield from self._pick(name)

    def _bounded(self, node: Node, admitted: Reps) -> Reps:
        """The demands within the bounds; tied slots keep what all of them may be."""
        left = {
            slot: self.bounds.of(repset, slot_type(node, slot, self.graph))
            for slot in _every(admitted)
            if (repset := admitted.at(slot)) is not None
        }
        for tie in admitted.ties:
            there = [slot for slot in tie if slot in left]
            if any(left[slot] != admitted.at(slot) for slot in there):
                for slot, other in product(there, there):
                    common = left[slot] & left[other]
                    left[slot] = common if len(common) else left[slot]
        reps = admitted
        for slot, repset in left.items():
            reps = reps.replaced(slot, repset)
        return reps

    def _rule_out(self, node: Node, admitted: Reps, reps: Reps) -> Generator[Step, None, None]:
        """Steps for what the bounds took away, and for what stays in buffers against the wish."""
        for slot in _every(admitted):
            had, left = admitted.at(slot), reps.at(slot)
            assert had is not None and left is not None
            over = self.bounds.too_large(had, slot_type(node, slot, self.graph))
            if left != had:
                asked = f"storage={self.bounds.storage!r} asks"
                asked = over if over and self.bounds.storage != BUFFER else asked
                why: tuple[object, ...] = ("{0}: {1}, as {2}", left, asked)
                now = self._reps(node.name).replaced(slot, left)
                yield self._set(node.name, now, "bound", (slot,), why, None)
            if self.bounds.storage == TEXTURE and not _has_texture(left):
                told = over or _in_buffer_why(node, slot, self.graph)
                why = ("{0}: stays in a buffer, because {1}", told)
                yield self._set(node.name, self._reps(node.name), "buffer", (slot,), why, None)

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
                wants = demanded(reader, self.graph, self.kernels)
                theirs = self._bounded(reader, wants).at(slot)
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


def slot_type(node: Node, slot: int, graph: Graph) -> TensorType:
    """The type of an operand or result; of a list, that of its largest member."""
    if slot < 0:
        return node.types[-1 - slot]
    kinds = [graph.type_of(leaf) for leaf in leaves(node.args[slot])]
    return max((t for t in kinds if t is not None), key=lambda t: t.numel)


def _has_texture(repset: RepSet) -> bool:
    return any(r.storage is Storage.TEXTURE_3D for r in repset)


def _in_buffer_why(node: Node, slot: int, graph: Graph) -> str:
    kind = slot_type(node, slot, graph)
    if node.op == "input":
        return "an input arrives contiguous"
    if not kind.dtype.floating and kind.dtype not in (DType.INT8, DType.UINT8):
        return f"{kind.dtype} has no texture representation"
    return f"kernel {node.kernel} takes it from buffers only" if node.kernel else "it has no kernel"


def _every(reps: Reps) -> tuple[int, ...]:
    inputs = tuple(i for i, r in enumerate(reps.inputs) if r is not None)
    return inputs + tuple(-1 - j for j in range(len(reps.outputs)))


def _demand_why(node: Node) -> tuple[object, ...]:
    if node.op == "input":
        return ("{0}: an input arrives contiguous",)
    if node.kernel is None:
        return ("{0}: no kernel, drawn as contiguous",)
    return ("{0}: as {1} demands", node.kernel)
