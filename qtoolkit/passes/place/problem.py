"""A graph as placement sees it: nodes by number, repsets as bit masks, ties resolved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qtoolkit.errors import NoRepresentation
from qtoolkit.graph import Const, Graph, Node, Ref, TensorType, leaves
from qtoolkit.layout import Reps, RepSet, TensorRepr, bit, members
from qtoolkit.passes.place.demands import ANY, BUFFER, TEXTURE, Limits, Table, spoken_of
from qtoolkit.passes.place.form import (
    BUFFERS,
    TEXTURES,
    Form,
    executorch_order,
    is_open,
    padded,
)
from qtoolkit.passes.rules import PlaceRules

Value = tuple[int, int]
ALIAS = "getitem"


@dataclass(eq=False, slots=True)
class Operand:
    """One tensor operand: its position, and the values it reads (several in a list), each a node
    or constant by number and a result.

    mixed: a list that holds other things too, None for example. constant: one of the values is.
    """

    position: int
    values: tuple[Value, ...]
    listed: bool = False
    mixed: bool = False
    constant: bool = False


class Problem:
    """The graph by number: nodes in order, then constants. `forms[n]` is None for nodes without a
    say (inputs of other compilers, packed constants).
    """

    def __init__(self, graph: Graph, table: Table, rules: PlaceRules, limits: Limits) -> None:
        self.graph, self.table, self.rules, self.limits = graph, table, rules, limits
        self.names = [n.name for n in graph.nodes]
        self.nodes = len(self.names)
        self.types: list[tuple[TensorType, ...]] = [n.types for n in graph.nodes]
        self.number = {name: i for i, name in enumerate(self.names)}
        self._constant_number: dict[str, int] = {}
        for name, constant in graph.constants.items():
            self._constant_number[name] = len(self.names)
            self.names.append(name)
            self.types.append((constant.type,))
        self._allowed_of: list[dict[int, int] | None] = [None] * len(self.names)
        self.is_alias = [n.op == ALIAS for n in graph.nodes]
        self.operands = [self._operands(node) for node in graph.nodes]
        # What operands without a demand are brought to; constants of theirs the op packs itself.
        odd = rules.oddities and table.neutral is not None
        self._neutral = table.neutral.mask if odd and table.neutral is not None else 0
        self.demanded: list[Reps | None] = []
        self.forms: list[Form | None] = []
        self._widths: list[int] = []
        self._forms: dict[object, Form] = {}
        self._allowed: dict[tuple[int, TensorType], int] = {}
        for n, node in enumerate(graph.nodes):
            demanded = table.demands(node, graph)
            self.demanded.append(demanded)
            stated = 0 if demanded is None else len(demanded.inputs)
            self._widths.append(max(stated, len(node.args)))
            self.forms.append(None if demanded is None else self._form(n, demanded))

    def find(self, name: str) -> int | None:
        """The number of a node or constant; None if there is none of that name."""
        return self.number.get(name, self._constant_number.get(name))

    def is_constant(self, number: int) -> bool:
        return number >= self.nodes

    def types_at(self, n: int, position: int) -> tuple[TensorType, ...]:
        """The types of an operand (of every member of a list) or, past them, of a result."""
        for found in self.operands[n]:
            if found.position == position:
                return tuple(self.types[s][r] for s, r in found.values)
        return (self.types[n][position - self._widths[n]],)

    def admitted(self, mask: int, n: int, result: int = 0) -> int:
        """What the device's limits leave of a mask for result `result` of node or constant n."""
        if not mask & TEXTURES:
            return mask
        mine = self._allowed_of[n]
        if mine is None:
            mine = self._allowed_of[n] = {}
        key = mask if result == 0 else mask | result + 1 << 32
        known = mine.get(key)
        if known is None:
            known = mine[key] = self._within_limits(mask, self.types[n][result])
        return known

    def _within_limits(self, mask: int, type: TensorType) -> int:
        known = self._allowed.get((mask, type))
        if known is None:
            over = self.limits.over
            known = sum(bit(r) for r in members(mask) if over(r, type, self.table) is None)
            self._allowed[mask, type] = known
        return known

    def wished(self, mask: int) -> int:
        """What the storage asked for leaves of a mask; never nothing."""
        wanted = {BUFFER: BUFFERS, TEXTURE: TEXTURES}.get(self.limits.storage, -1)
        return mask & wanted or mask

    def _operands(self, node: Node) -> tuple[Operand, ...]:
        found: list[Operand] = []
        numbers = self.number
        for position, arg in enumerate(node.args):
            kind = arg.__class__
            if kind is Ref:
                value: Value = numbers[arg.node], arg.index  # type: ignore[union-attr, assignment]
                found.append(Operand(position, (value,), False, False, False))
            elif kind is Const:
                value = self._constant_number[arg.name], 0  # type: ignore[union-attr]
                found.append(Operand(position, (value,), False, False, True))
            elif kind is tuple and arg and not isinstance(arg[0], int | float):  # type: ignore[index]
                every = tuple(leaves(arg))
                tensors = [leaf for leaf in every if isinstance(leaf, Ref | Const)]
                if tensors:
                    values = tuple(map(self._value, tensors))
                    constant = any(isinstance(leaf, Const) for leaf in tensors)
                    mixed = len(tensors) < len(every)
                    found.append(Operand(position, values, True, mixed, constant))
        return tuple(found)

    def _value(self, arg: object) -> Value:
        if isinstance(arg, Ref):
            return self.number[arg.node], arg.index
        assert isinstance(arg, Const)
        return self._constant_number[arg.name], 0

    def _form(self, n: int, demanded: Reps) -> Form:
        width = self._widths[n]
        masks = [0] * width
        neutral = self._neutral
        stated = demanded.inputs
        for operand in self.operands[n]:
            p = operand.position
            repset = stated[p] if p < len(stated) else None
            if repset is not None:
                mask = repset.mask
                for source, result in operand.values:
                    mask &= self.admitted(repset.mask, source, result)
                masks[p] = mask
            elif neutral and not operand.mixed and not operand.constant:
                masks[p] = neutral
        for result, repset in enumerate(demanded.outputs):
            masks.append(self.admitted(repset.mask, n, result))
        # Tables hand out the same Reps again and again; `demanded` keeps each alive.
        quick = id(demanded), *masks
        known = self._forms.get(quick)
        if known is None:
            key = (
                tuple(None if r is None else r.reprs for r in demanded.inputs),
                tuple(r.reprs for r in demanded.outputs), demanded.ties, tuple(masks),
            )  # fmt: skip
            known = self._forms.get(key)
            if known is None:
                known = self._forms[key] = self._new_form(demanded, width, masks)
                if 0 in known.start:
                    self._refuse_empty(n, known, masks)
            self._forms[quick] = known
        return known

    def _new_form(self, demanded: Reps, width: int, masks: list[int]) -> Form:
        groups = [
            [slot if slot >= 0 else width - 1 - slot for slot in tie] for tie in demanded.ties
        ]
        partners = [_reached(p, groups, masks) for p in range(len(masks))]
        start = list(masks)
        for p, others in enumerate(partners):
            for other in others:
                start[p] &= masks[other]
        wished = [self.wished(mask) for mask in start]
        for p, others in enumerate(partners):
            common = wished[p]
            for other in others:
                common &= wished[other]
            wished[p] = common or start[p]
        inputs = padded(demanded.inputs, width)
        repsets = [*inputs, *demanded.outputs]
        if not self.rules.input_preferences and demanded.outputs:
            repsets[:width] = [
                None if r is None else _preferring(r, demanded.outputs[0]) for r in inputs
            ]
        stated = tuple(
            (repset.mask if repset is not None else mask) if mask or p >= width else 0
            for p, (repset, mask) in enumerate(
                zip([*inputs, *demanded.outputs], masks, strict=True)
            )
        )
        return Form(
            demanded, stated, tuple(wished), width, tuple(partners), self.rules,
            tuple(tuple(bit(r) for r in self._preferred(r or ANY)) for r in repsets),
            not any(map(is_open, wished)),
        )  # fmt: skip

    def _preferred(self, repset: RepSet) -> Sequence[TensorRepr]:
        return executorch_order(repset) if self.rules.pick == "executorch" else repset.reprs

    def _refuse_empty(self, n: int, form: Form, masks: list[int]) -> None:
        """Raise NoRepresentation for an operand that nothing is left for."""
        read = {o.position for o in self.operands[n]}
        for p, mask in enumerate(form.start):
            demanded = form.reps.at(form.slot(p))
            if mask or demanded is None or (p < form.inputs and p not in read):
                continue
            told = " and then ".join(self._emptied(n, form, p, demanded, masks))
            raise NoRepresentation(
                f"%{self.names[n]}: {spoken_of([form.slot(p)])} has no representation left: "
                f"{told}. Use another kernel for {self.graph.nodes[n].op}, split the tensor, or "
                "leave the op to the host"
            )

    def _emptied(
        self, n: int, form: Form, p: int, demanded: RepSet, masks: list[int]
    ) -> Iterator[str]:
        yield f"{self.table.name} admits {demanded}"
        lost = demanded.mask & ~masks[p]
        if lost:
            over = self.limits.over
            types = self.types_at(n, p)
            yield next(
                why
                for r in members(lost)
                for type in types
                if (why := over(r, type, self.table)) is not None
            )
        if masks[p]:
            tied = ", ".join(
                f"{spoken_of([form.slot(o)])} ({ANY.within(masks[o])})" for o in form.partners[p]
            )
            yield f"it is tied to {tied}"


def _preferring(repset: RepSet, other: RepSet) -> RepSet:
    """The same set, what `other` has first and in its order."""
    return RepSet([*(r for r in other if r in repset), *repset])


def _reached(p: int, groups: Sequence[Sequence[int]], masks: Sequence[int]) -> tuple[int, ...]:
    """All positions tied to p, by one tie or by several in a row; those of tensors alone."""
    found = [p]
    for at in found:
        for group in groups:
            if at in group:
                found += [q for q in group if q not in found and (masks[q] or q == p)]
    return tuple(sorted(q for q in found if q != p))
