"""Pricing placements: the copies a placement makes, and what they and the operations cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qtoolkit.graph import Graph, Ref, TensorType
from qtoolkit.layout import TensorRepr, bit, members
from qtoolkit.passes.place.cost import Cost, CostModel
from qtoolkit.passes.place.form import State
from qtoolkit.passes.place.problem import Problem
from qtoolkit.trace import Step


@dataclass(frozen=True, slots=True)
class Copy:
    """One transition: a value, the nodes that read it so, from and to, bytes written."""

    value: Ref
    users: tuple[str, ...]
    has: TensorRepr
    wants: TensorRepr
    nbytes: int


def copies(graph: Graph, steps: Iterable[Step], shared: bool = True) -> tuple[Copy, ...]:
    """The copies that placement decided on, in order; one for each reader where none is shared."""
    found: dict[object, Copy] = {}
    for step in steps:
        if step.kind != "copy":
            continue
        _, name, value, wants, has, *_ = step.why
        key = (value, has, wants, None if shared else name)
        known = found.get(key)
        if known is None:
            nbytes = graph[value.node].types[value.index].nbytes
            found[key] = Copy(value, (name,), has, wants, nbytes)
        elif name not in known.users:
            found[key] = Copy(value, (*known.users, name), has, wants, known.nbytes)
    return tuple(found.values())


class Pricing:
    """What a model charges for the operands of a problem, one by one."""

    def __init__(self, problem: Problem, model: CostModel) -> None:
        self.problem, self.model = problem, model
        self._ranks: dict[int, tuple[Mapping[int, int], ...]] = {}

    def operand(self, n: int, position: int, mask: int) -> float:
        """What node n pays for having one operand or result in the representation of `mask`.

        A measured operation is charged to result 0, by whose representation it was measured; its
        operands are priced by the default unless every representation of that result was measured.
        """
        problem, form = self.problem, self.problem.forms[n]
        assert form is not None
        if problem.is_alias[n] or not mask:
            return 0.0
        if self.model.operations and form.inputs < len(form.start):
            first = form.inputs
            if position == first:
                measured = self._measured(n, mask)
                if measured is not None:
                    return measured
            elif all(self._measured(n, bit(r)) is not None for r in members(form.start[first])):
                return 0.0
        if form.reps.at(form.slot(position)) is None:
            return 0.0
        nbytes = sum(t.nbytes for t in problem.types_at(n, position))
        return self.model.ranked(nbytes, self._rank(n, position, mask))

    def operations(self, states: Sequence[State | None]) -> float:
        """What all operations cost in these states, every operand being decided."""
        total = 0.0
        for n, state in enumerate(states):
            if state is not None:
                total += sum(self.operand(n, p, mask) for p, mask in enumerate(state))
        return total

    def copies(self, made: Iterable[Copy]) -> float:
        """What copies cost."""
        return sum(self.model.copy(c.nbytes, c.has, c.wants) for c in made)

    def cost(self, states: Sequence[State | None], made: Iterable[Copy]) -> Cost:
        """The two sums."""
        return Cost(self.copies(made), self.operations(states), self.model.unit, self.model.name)

    def _measured(self, n: int, mask: int) -> float | None:
        total = sum(t.nbytes for t in self._tensors(n))
        (r,) = members(mask)
        return self.model.measured(self.problem.graph.nodes[n].op, r, total)

    def _tensors(self, n: int) -> Iterator[TensorType]:
        problem = self.problem
        for operand in problem.operands[n]:
            for s, r in operand.values:
                yield problem.types[s][r]
        yield from problem.types[n]

    def _rank(self, n: int, position: int, mask: int) -> int:
        form = self.problem.forms[n]
        assert form is not None
        ranks = self._ranks.get(id(form))
        if ranks is None:
            ranks = tuple({b: i for i, b in enumerate(order)} for order in form.orders)
            self._ranks[id(form)] = ranks
        return ranks[position].get(mask, 0)


def states_of(graph: Graph, problem: Problem) -> list[State | None]:
    """The states of a placed graph's nodes; None for those without a say and for items."""
    found: list[State | None] = []
    for n, node in enumerate(graph.nodes):
        form, reps = problem.forms[n], node.reps
        if form is None or reps is None or problem.is_alias[n]:
            found.append(None)
            continue
        ins = (reps.at(p) for p in range(form.inputs))
        found.append(
            (
                *(0 if r is None else bit(r.only) for r in ins),
                *(bit(r.only) for r in reps.outputs),
            )
        )
    return found
