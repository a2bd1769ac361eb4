"""What the least cost of a placement is, found in slow and obvious ways.

Of the problem only demands, limits and ties are read, of the model only prices: nothing here knows
how a placement is sought. A node is placed in one of its ways: a label for each of its slots.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from math import inf, prod

from qtoolkit.layout import bit, members, span
from qtoolkit.passes.place.cost import CostModel
from qtoolkit.passes.place.form import executorch_order
from qtoolkit.passes.place.problem import Problem

Slot = tuple[int, int]  # a node, and a position of its form, or a result of a node without one
Way = dict[Slot, int]
REPR = {bit(r): r for r in members(-1)}


@dataclass(frozen=True, slots=True)
class Reading:
    """A value as its reader names it, the slot where it is made, the slot that reads it."""

    value: Slot
    source: Slot
    reader: Slot
    nbytes: int


def ways(problem: Problem, n: int) -> list[Way]:
    """All that a node may have, alone: within its demands, its ties kept."""
    form = problem.forms[n]
    if problem.is_alias[n]:
        return [{}]
    if form is None:
        return _adopted(problem, n)
    masks = dict(enumerate(form.start))
    admitted = {(n, p): [bit(r) for r in members(m)] for p, m in masks.items() if m}
    every = (dict(zip(admitted, labels, strict=True)) for labels in product(*admitted.values()))
    return [way for way in every if compatible(problem, way)]


def _adopted(problem: Problem, n: int) -> list[Way]:
    """A node without a say: one representation for all its results that are read, of those that the
    device can hold or that a reader wants.
    """
    neutral, wanted = problem.table.neutral, 0
    held = 0 if neutral is None else neutral.mask
    read = [r for r in readings(problem) if r.source[0] == n]
    for j in range(len(problem.types[n])):
        held &= problem.admitted(held, n, j)
    for m, p in (r.reader for r in read):
        form = problem.forms[m]
        assert form is not None
        wanted |= form.start[p]
    if not read:
        return [{}]
    return [{r.source: bit(label) for r in read} for label in members(held | wanted)]


def compatible(problem: Problem, chosen: Mapping[Slot, int]) -> bool:
    """Ties hold: tied slots are identical, or of one storage and packing."""
    packed = problem.rules.ties == "packed-dim"
    for (n, p), label in chosen.items():
        form = problem.forms[n]
        for q in form.partners[p] if form is not None else ():
            other = chosen[n, q]
            if (span(label) != span(other)) if packed else (label != other):
                return False
    return True


def readings(problem: Problem) -> Iterator[Reading]:
    """Every read that a copy may stand before."""
    odd = problem.rules.oddities
    for n, operands in enumerate(problem.operands):
        form = problem.forms[n]
        if form is None or problem.is_alias[n]:
            continue
        for operand in operands:
            if not form.start[operand.position] or (odd and operand.listed and operand.constant):
                continue
            for value in operand.values:
                if problem.is_constant(value[0]):
                    continue
                source, result = value
                while problem.is_alias[source]:  # an item lies where its source put it
                    source, result = problem.operands[source][0].values[0]
                made = problem.forms[source]
                slot = source, result if made is None else made.inputs + result
                nbytes = problem.types[source][result].nbytes
                yield Reading(value, slot, (n, operand.position), nbytes)


def operation(problem: Problem, model: CostModel, n: int, way: Mapping[Slot, int]) -> float:
    """What node n costs: as measured by its result 0, else by bytes and rank of each tensor."""
    form = problem.forms[n]
    if form is None or problem.is_alias[n]:
        return 0.0
    node, total = problem.graph.nodes[n], 0.0
    types = {o.position: [problem.types[s][r] for s, r in o.values] for o in problem.operands[n]}
    types |= {form.inputs + j: [t] for j, t in enumerate(node.types)}
    if (n, form.inputs) in way:
        every = sum(t.nbytes for found in types.values() for t in found)
        measured = model.measured(node.op, REPR[way[n, form.inputs]], every)
        if measured is not None:
            return measured
    for (_, p), label in way.items():
        demanded = form.reps.at(form.slot(p))
        if demanded is not None:
            executorch = problem.rules.pick == "executorch"
            order = executorch_order(demanded) if executorch else demanded.reprs
            nbytes = sum(t.nbytes for t in types[p])
            total += model.ranked(nbytes, order.index(REPR[label]))
    return total


def copying(
    problem: Problem, model: CostModel, read: Iterable[Reading], chosen: Mapping[Slot, int]
) -> float:
    """What the copies cost, one for each value and representation and, unshared, each reader."""
    made: dict[object, float] = {}
    for r in read:
        has, wants = chosen[r.source], chosen[r.reader]
        if has != wants:
            reader = None if problem.rules.share_transitions else r.reader[0]
            key = r.value, wants, reader
            made[key] = model.copy(r.nbytes, REPR[has], REPR[wants])
    return sum(made.values())


def total(problem: Problem, model: CostModel, chosen: Mapping[Slot, int]) -> float:
    """What a placement costs: copies, shared or not, and operations."""
    of: dict[int, Way] = defaultdict(dict)
    for slot, label in chosen.items():
        of[slot[0]][slot] = label
    paid = sum(operation(problem, model, n, way) for n, way in of.items())
    return copying(problem, model, readings(problem), chosen) + paid


def brute_force(problem: Problem, model: CostModel, most: int = 20_000) -> float | None:
    """The least cost of all placements there are; None if there are too many."""
    each = [ways(problem, n) for n in range(problem.nodes)]
    if prod(map(len, each)) > most:
        return None
    costs = [[operation(problem, model, n, way) for way in found] for n, found in enumerate(each)]
    read = list(readings(problem))
    least = inf
    for picked in product(*(range(len(found)) for found in each)):
        chosen: Way = {}
        for found, i in zip(each, picked, strict=True):
            chosen |= found[i]
        paid = sum(c[i] for c, i in zip(costs, picked, strict=True))
        least = min(least, paid + copying(problem, model, read, chosen))
    return least


def by_dynamic_programming(problem: Problem, model: CostModel) -> float:
    """The least cost where nodes and the values between them form trees, in any direction.

    From the last node of each tree: the cost of all that hangs on a node beyond one of its slots,
    by the label of that slot. Raises ValueError where a value reaches a node in two ways.
    """
    reads: dict[Slot, list[Reading]] = defaultdict(list)
    for r in readings(problem):
        reads[r.value].append(r)
    at: dict[int, list[Slot]] = defaultdict(list)  # the values that touch a node
    for value, found in reads.items():
        for slot in (found[0].source, *(r.reader for r in found)):
            at[slot[0]].append(value)

    @cache
    def beyond(n: int, without: Slot | None) -> list[tuple[Way, float]]:
        """The ways of node n, with what they and all behind its other values cost."""
        if n in seen:
            raise ValueError(f"%{problem.names[n]} is reached in two ways")
        seen.add(n)
        found = []
        for way in ways(problem, n):
            cost = operation(problem, model, n, way)
            for value in at[n]:
                if value != without:
                    cost += behind(value, n)[_label(reads[value], n, way)]
            found.append((way, cost))
        return found

    @cache
    def behind(value: Slot, asking: int) -> dict[int, float]:
        """The cost of a value's copies and of all its other nodes, by the label of `asking`."""
        found = reads[value]
        source = found[0].source[0]
        if len({r.reader[0] for r in found}) < len(found):
            raise ValueError(f"%{problem.names[source]} is read twice by one node")
        others = [r for r in found if r.reader[0] != asking]
        wants = [_least(beyond(r.reader[0], value), r.reader) for r in others]
        if source == asking:
            return {
                has: _fan(problem, model, found[0].nbytes, has, wants)
                for has in {way[found[0].source] for way in ways(problem, source)}
            }
        mine = next(r.reader for r in found if r.reader[0] == asking)
        made = _least(beyond(source, value), found[0].source)
        return {
            want: min(
                cost + _fan(problem, model, found[0].nbytes, has, [*wants, {want: 0.0}])
                for has, cost in made.items()
            )
            for want in {way[mine] for way in ways(problem, asking)}
        }

    seen: set[int] = set()
    least = 0.0
    for n in reversed(range(problem.nodes)):
        if n not in seen:
            least += min(cost for _, cost in beyond(n, None))
    return least


def _label(read: Sequence[Reading], n: int, way: Way) -> int:
    source = read[0].source
    return way[source] if source[0] == n else next(way[r.reader] for r in read if r.reader in way)


def _least(found: Sequence[tuple[Way, float]], slot: Slot) -> dict[int, float]:
    """The least cost by the label of one slot."""
    least: dict[int, float] = {}
    for way, cost in found:
        least[way[slot]] = min(cost, least.get(way[slot], inf))
    return least


def _fan(
    problem: Problem,
    model: CostModel,
    nbytes: int,
    has: int,
    wants: Sequence[Mapping[int, float]],
) -> float:
    """The least cost of all readers of a value, each with its costs by label, and of the copies.

    Shared copies are a set: every set of them is tried, readers then take the cheapest in it.
    """

    def copy(label: int) -> float:
        return model.copy(nbytes, REPR[has], REPR[label]) if label != has else 0.0

    if not problem.rules.share_transitions:
        return sum(min(cost + copy(label) for label, cost in want.items()) for want in wants)
    labels = sorted({label for want in wants for label in want} - {has})
    least = inf
    for size in range(min(len(labels), len(wants)) + 1):
        for made in combinations(labels, size):
            there = {has, *made}
            paid = sum(map(copy, made))
            for want in wants:
                paid += min((cost for label, cost in want.items() if label in there), default=inf)
            least = min(least, paid)
    return least
