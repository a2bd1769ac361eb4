"""What the least cost of a placement is, found in slow and obvious ways."""

from collections.abc import Iterator, Mapping
from itertools import product

from qtoolkit.layout import bit, members, span
from qtoolkit.passes.place.cost import CostModel
from qtoolkit.passes.place.pricing import Pricing
from qtoolkit.passes.place.problem import Problem

Slot = tuple[int, int]  # a node, and a position of its form, or a result of a node without one
REPR = {bit(r): r for r in members(-1)}


def slots(problem: Problem) -> dict[Slot, tuple[int, ...]]:
    """Every slot that has representations, with the bits that it may take."""
    found: dict[Slot, tuple[int, ...]] = {}
    read = {value for value, _, _ in readings(problem)}
    for n, form in enumerate(problem.forms):
        if problem.is_alias[n]:
            continue
        if form is not None:
            masks = list(enumerate(form.start))
        else:
            neutral = problem.table.neutral
            assert neutral is not None
            results = range(len(problem.types[n]))
            masks = [(r, problem.admitted(neutral.mask, n, r)) for r in results]
        found |= {
            (n, p): tuple(bit(r) for r in members(m))
            for p, m in masks
            if m and (form is not None or (n, p) in read)
        }
    return found


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


def readings(problem: Problem) -> Iterator[tuple[Slot, Slot, int]]:
    """(slot of a value, slot that reads it, bytes) for every read that a copy may stand before."""
    odd = problem.rules.oddities
    for n, operands in enumerate(problem.operands):
        form = problem.forms[n]
        if form is None or problem.is_alias[n]:
            continue
        for operand in operands:
            if not form.start[operand.position] or (odd and operand.listed and operand.constant):
                continue
            for source, result in operand.values:
                if problem.is_constant(source):
                    continue
                while problem.is_alias[source]:
                    source, result = problem.operands[source][0].values[0]
                made = problem.forms[source]
                value = source, result if made is None else made.inputs + result
                yield value, (n, operand.position), problem.types[source][result].nbytes


def total(problem: Problem, model: CostModel, chosen: Mapping[Slot, int]) -> float:
    """What a choice costs: copies, shared or not, and operations."""
    made: dict[object, float] = {}
    for count, (value, reader, nbytes) in enumerate(readings(problem)):
        has, wants = chosen[value], chosen[reader]
        if has != wants:
            key = (value, wants) if problem.rules.share_transitions else count
            made[key] = model.copy(nbytes, REPR[has], REPR[wants])
    pricing = Pricing(problem, model)
    paid = sum(
        pricing.operand(n, p, label)
        for (n, p), label in chosen.items()
        if problem.forms[n] is not None
    )
    return sum(made.values()) + paid


def brute_force(problem: Problem, model: CostModel, most: int = 200_000) -> float | None:
    """The least cost of all choices there are; None if there are too many."""
    free = slots(problem)
    count = 1
    for labels in free.values():
        count *= len(labels)
    if count > most:
        return None
    tried = (dict(zip(free, labels, strict=True)) for labels in product(*free.values()))
    return min(total(problem, model, chosen) for chosen in tried if compatible(problem, chosen))


def by_dynamic_programming(problem: Problem, model: CostModel) -> float:
    """The least cost of a graph whose values have one reader each: trees that run together.

    cost[n][label] is the least cost of everything above node n, its result having that label.
    """
    pricing = Pricing(problem, model)
    best: dict[int, dict[int, float]] = {}
    read: set[int] = set()
    for n, form in enumerate(problem.forms):
        assert form is not None and not problem.is_alias[n]
        out = form.inputs
        assert form.reps.ties == () or all(-1 in tie for tie in form.reps.ties)
        best[n] = {}
        for label in (bit(r) for r in members(form.start[out])):
            cost = pricing.operand(n, out, label)
            for operand in problem.operands[n]:
                p = operand.position
                tied = p in form.partners[out]
                wants = [label] if tied else [bit(r) for r in members(form.start[p])]
                ((source, _),) = operand.values
                assert source not in read or label != next(iter(best[n]), label)
                nbytes = problem.types[source][0].nbytes
                cost += min(
                    pricing.operand(n, p, want)
                    + min(
                        before + (model.copy(nbytes, REPR[has], REPR[want]) if has != want else 0)
                        for has, before in best[source].items()
                    )
                    for want in wants
                )
            best[n][label] = cost
        read |= {o.values[0][0] for o in problem.operands[n]}
    return sum(min(best[n].values()) for n in best if n not in read)
