"""The best possible placement: least total cost under the same constraints, proved by HiGHS.

Positions that a tie makes equal are one choice; a value read in another representation than it has
costs a copy for each that is read. Choices that share a value form a region, and regions are
solved one by one: an integer program each, unless its cheapest choices need no copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from qtoolkit.layout import TensorRepr, bit, members, span
from qtoolkit.passes.place.form import State, is_open
from qtoolkit.passes.place.milp import Rows
from qtoolkit.passes.place.pricing import Pricing
from qtoolkit.passes.place.problem import Problem, Value

SAME = 1e-6  # costs nearer than this, relatively, are equal


@dataclass(eq=False, slots=True)
class Choice:
    """Positions that get one representation: those that may be, with what each costs."""

    domain: int
    nodes: list[int]
    costs: dict[int, float] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[int, ...]:
        return tuple(bit(r) for r in members(self.domain))


@dataclass(eq=False, slots=True)
class Reading:
    """A value by its choice, the choices that read it, and the bytes of a copy."""

    source: int
    readers: tuple[int, ...]
    nbytes: int


@dataclass(eq=False, slots=True)
class Region:
    """Choices that must be made together, and what was found: costs of them and their copies."""

    choices: tuple[int, ...]
    readings: tuple[int, ...]
    alike: tuple[tuple[int, int], ...] = ()
    cost: float = 0.0
    bound: float = 0.0
    greedy: float = 0.0

    @property
    def proved(self) -> bool:
        """Nothing cheaper exists."""
        return self.cost - self.bound <= SAME * max(1.0, abs(self.cost))


class Program:
    """A placement as choices, readings and regions."""

    def __init__(self, problem: Problem, pricing: Pricing) -> None:
        self.problem, self.pricing = problem, pricing
        self.choices: list[Choice] = []
        self.of: dict[tuple[int, int], int] = {}
        self.alike: list[tuple[int, int]] = []
        self.wanted: dict[Value, int] = {}
        for n, operands in enumerate(problem.operands):
            form = problem.forms[n]
            for operand in operands if form is not None else ():
                for value in operand.values:
                    mask = form.start[operand.position] if form is not None else 0
                    self.wanted[value] = self.wanted.get(value, 0) | mask
        for n, form in enumerate(problem.forms):
            if form is None:
                self._free(n)
            elif not problem.is_alias[n]:
                self._constrained(n)
        self.readings = list(self._readings())
        self.regions = self._regions()

    def labelled(self, states: Sequence[State | None], held: Mapping[int, int]) -> list[int]:
        """The label of each choice in given states; `held` for the nodes without a say."""
        labels = [0] * len(self.choices)
        for (n, position), choice in self.of.items():
            state = states[n]
            labels[choice] = held.get(n, 0) if state is None else state[position]
        return [
            label & choice.domain or choice.labels[0]
            for label, choice in zip(labels, self.choices, strict=True)
        ]

    def cost(self, region: Region, labels: Sequence[int]) -> float:
        """What a region costs with these labels."""
        total = sum(self.choices[c].costs[labels[c]] for c in region.choices)
        return total + sum(self._copies(self.readings[r], labels) for r in region.readings)

    def solve(self, greedy: Sequence[int], seconds: float) -> list[int]:
        """Labels of least cost; those of `greedy` wherever nothing is gained over them."""
        end = perf_counter() + seconds
        best = list(greedy)
        known: dict[object, tuple[tuple[int, ...], float]] = {}
        for region in self.regions:
            region.greedy = self.cost(region, greedy)
            found, region.bound = self._solved(region, best, known, end)
            tried = list(best)
            for choice, label in zip(region.choices, found, strict=True):
                tried[choice] = label
            region.cost = self.cost(region, tried)
            if region.cost < region.greedy - SAME * max(1.0, region.greedy):
                best = tried
            else:
                region.cost = region.greedy
            region.bound = min(region.bound, region.cost)
        return best

    def _solved(
        self,
        region: Region,
        labels: Sequence[int],
        known: dict[object, tuple[tuple[int, ...], float]],
        end: float,
    ) -> tuple[tuple[int, ...], float]:
        current = tuple(labels[c] for c in region.choices)
        if not any(is_open(c.domain) for c in self._in(region)):
            return current, region.greedy
        cheapest = [min(c.labels, key=c.costs.__getitem__) for c in self._in(region)]
        tried = list(labels)
        for choice, label in zip(region.choices, cheapest, strict=True):
            tried[choice] = label
        least = sum(c.costs[label] for c, label in zip(self._in(region), cheapest, strict=True))
        if not region.alike and self.cost(region, tried) <= least:
            return tuple(cheapest), least
        key = self._shape(region)
        if key in known:
            return known[key]
        left = end - perf_counter()
        if left <= 0:
            return current, least
        found, bound = self._integer(region, current, left)
        bound = max(bound, least)
        known[key] = found, bound
        return found, bound

    def _in(self, region: Region) -> Iterator[Choice]:
        return (self.choices[c] for c in region.choices)

    def _shape(self, region: Region) -> object:
        """Equal for regions that are the same program."""
        place = {c: i for i, c in enumerate(region.choices)}

        def seen(c: int) -> object:
            return place[c] if c in place else ("decided", self.choices[c].domain)

        return (
            tuple(tuple(sorted(c.costs.items())) for c in self._in(region)),
            tuple(
                (seen(r.source), tuple(map(seen, r.readers)), r.nbytes)
                for r in (self.readings[i] for i in region.readings)
            ),
            tuple((seen(a), seen(b)) for a, b in region.alike),
        )

    def _integer(
        self, region: Region, current: tuple[int, ...], seconds: float
    ) -> tuple[tuple[int, ...], float]:
        """Solve one region by branch and bound: its labels, and a proved lower bound."""
        rows = Rows()
        column = {
            (c, label): rows.variable(self.choices[c].costs[label], whole=True)
            for c in region.choices
            for label in self.choices[c].labels
        }
        for c in region.choices:
            rows.at_least([(column[c, b], 1.0) for b in self.choices[c].labels], 1.0, equal=True)
        for a, b in region.alike:
            self._same_packing(rows, column, a, b)
        for r in region.readings:
            self._copy_rows(rows, column, self.readings[r])
        values, bound = rows.solve(seconds)
        if values is None:
            return current, bound
        found = tuple(
            max(self.choices[c].labels, key=lambda b, c=c: values[column[c, b]])  # type: ignore[misc]
            for c in region.choices
        )
        return found, bound

    def _same_packing(
        self, rows: "Rows", column: Mapping[tuple[int, int], int], a: int, b: int
    ) -> None:
        """Two choices whose representations must be compatible."""
        kinds = {span(label) for c in (a, b) for label in self.choices[c].labels}
        for kind in kinds:
            terms: list[tuple[int, float]] = []
            rest = 0.0
            for c, sign in ((a, 1.0), (b, -1.0)):
                for label in self.choices[c].labels:
                    if label & kind and (c, label) in column:
                        terms.append((column[c, label], sign))
                    elif label & kind:
                        rest -= sign
            rows.at_least(terms, rest, equal=True)

    def _copy_rows(
        self, rows: "Rows", column: Mapping[tuple[int, int], int], reading: Reading
    ) -> None:
        """A copy for each representation that is read and is not the value's own."""
        source = self.choices[reading.source]
        wanted: dict[int, list[int]] = {}
        for reader in reading.readers:
            for label in self.choices[reader].labels:
                wanted.setdefault(label, []).append(reader)
        for label, readers in wanted.items():
            others = [has for has in source.labels if has != label]
            prices = {has: self._price(reading, has, label) for has in others}
            if not others:
                continue
            if len(set(prices.values())) == 1:
                groups = [(others, next(iter(prices.values())))]
            else:
                groups = [([has], price) for has, price in prices.items()]
            made = [(rows.variable(price), has) for has, price in groups]
            if len(groups) > 1:
                for y, (has,) in made:  # a copy from `has` only where the value has it
                    if (reading.source, has) in column:
                        rows.at_least([(column[reading.source, has], 1.0), (y, -1.0)], 0.0)
            for reader in readers:
                terms = [(y, 1.0) for y, _ in made]
                rest = 0.0
                if (reading.source, label) in column:
                    terms.append((column[reading.source, label], 1.0))
                elif label & source.domain:
                    rest -= 1.0
                if (reader, label) in column:
                    terms.append((column[reader, label], -1.0))
                else:
                    rest += 1.0
                rows.at_least(terms, rest)

    def _price(self, reading: Reading, has: int, wants: int) -> float:
        return self.pricing.model.copy(reading.nbytes, REPR[has], REPR[wants])

    def _copies(self, reading: Reading, labels: Sequence[int]) -> float:
        has = labels[reading.source]
        wanted = {labels[reader] for reader in reading.readers} - {has}
        return sum(self._price(reading, has, want) for want in wanted)

    def _free(self, n: int) -> None:
        """A node without a say has one representation, of those that the device can hold or a
        reader wants (whose demand no limit may touch).
        """
        neutral, domain, wanted = self.problem.table.neutral, -1, 0
        results = range(len(self.problem.types[n]))
        for result in results:
            domain &= 0 if neutral is None else self.problem.admitted(neutral.mask, n, result)
            wanted |= self.wanted.get((n, result), 0)
        if not wanted:
            return
        choice = Choice(domain | wanted, [n])
        choice.costs = dict.fromkeys(choice.labels, 0.0)
        for result in results:
            self.of[n, result] = len(self.choices)
        self.choices.append(choice)

    def _constrained(self, n: int) -> None:
        problem, form = self.problem, self.problem.forms[n]
        assert form is not None
        packed = problem.rules.ties == "packed-dim"
        for p, mask in enumerate(form.start):
            if not mask or (n, p) in self.of:
                continue
            tied = (p,) if packed else (p, *form.partners[p])
            choice = Choice(mask, [n])
            choice.costs = {
                b: sum(self.pricing.operand(n, q, b) for q in tied) for b in choice.labels
            }
            for q in tied:
                self.of[n, q] = len(self.choices)
            if packed:
                self.alike += [
                    (self.of[n, q], len(self.choices)) for q in form.partners[p] if q < p
                ][:1]
            self.choices.append(choice)

    def _readings(self) -> Iterator[Reading]:
        """Who reads each value: all at once where copies are shared, else node by node."""
        problem = self.problem
        shared: dict[tuple[Value, int | None], list[int]] = {}
        for n, operands in enumerate(problem.operands):
            if problem.forms[n] is None or problem.is_alias[n]:
                continue
            for operand in operands:
                reader = self.of.get((n, operand.position))
                held = operand.listed and operand.constant
                if reader is None or (problem.rules.oddities and held):
                    continue
                for source, result in operand.values:
                    if problem.is_constant(source):
                        continue
                    # Items of one result have copies of their own, as they are nodes.
                    alone = None if problem.rules.share_transitions else n
                    shared.setdefault(((source, result), alone), []).append(reader)
        for (value, _), readers in shared.items():
            yield self._reading(self._resolved(*value), tuple(dict.fromkeys(readers)))

    def _reading(self, value: Value, readers: tuple[int, ...]) -> Reading:
        n, result = value
        form = self.problem.forms[n]
        position = result if form is None else form.inputs + result
        nbytes = self.problem.types[n][result].nbytes
        return Reading(self.of[n, position], readers, nbytes)

    def _resolved(self, source: int, result: int) -> Value:
        """The value behind an item."""
        while not self.problem.is_constant(source) and self.problem.is_alias[source]:
            operand = self.problem.operands[source][0]
            source, result = operand.values[0]
        return source, result

    def _regions(self) -> list[Region]:
        """Open choices that a value or a tie connects, with the readings that touch them."""
        root = list(range(len(self.choices)))

        def find(c: int) -> int:
            while root[c] != c:
                root[c] = root[root[c]]
                c = root[c]
            return c

        opened = [is_open(choice.domain) for choice in self.choices]
        for reading in self.readings:
            touched = [c for c in (reading.source, *reading.readers) if opened[c]]
            for c in touched[1:]:
                root[find(c)] = find(touched[0])
        for a, b in self.alike:
            if opened[a] and opened[b]:
                root[find(a)] = find(b)
        choices: dict[int, list[int]] = {}
        for c in range(len(self.choices)):
            choices.setdefault(find(c) if opened[c] else -1, []).append(c)
        readings: dict[int, list[int]] = {}
        for i, reading in enumerate(self.readings):
            touched = [c for c in (reading.source, *reading.readers) if opened[c]]
            readings.setdefault(find(touched[0]) if touched else -1, []).append(i)
        alike: dict[int, list[tuple[int, int]]] = {}
        for a, b in self.alike:
            if opened[a] or opened[b]:
                alike.setdefault(find(a if opened[a] else b), []).append((a, b))
        return [
            Region(tuple(members), tuple(readings.get(key, ())), tuple(alike.get(key, ())))
            for key, members in choices.items()
        ]


REPR: dict[int, TensorRepr] = {bit(r): r for r in members(-1)}
