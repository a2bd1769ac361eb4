"""What the readers of a value want: the search through users that narrows a set of
representations, with its budget, and a memory of searches already made.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from qtoolkit.passes.rules import PlaceRules

FOLLOW = 1 << 32  # in an edge: the reader's result is tied to the operand, so its readers count too
WANTS = FOLLOW - 1
MANY = 48  # readers from which on they are looked up by what they want
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to: the set left, the reader that narrowed it last, and whether the
    budget ended it before all readers were asked.
    """

    mask: int
    by: int | None
    ended: bool
    nodes: int


class Readers:
    """Who reads each value and what it wants, in the order in which they began to read.

    A value is a number; a reader is the number of a node with an edge: the mask it admits, and
    FOLLOW where the search goes on with its own result, the value `result[reader]`.
    """

    def __init__(self, rules: PlaceRules) -> None:
        self.rules = rules
        self.of: dict[int, dict[int, int]] = {}
        self._edges: dict[int, Iterable[tuple[int, int]]] = {}
        self._by_want: dict[int, dict[int, dict[int, int]]] = {}
        self._order = 0
        self._clock = 0
        self._touched: dict[int, int] = {}
        self._known: dict[Key, tuple[int, Found, list[int]]] = {}

    def read(self, value: int, reader: int, edge: int) -> None:
        """`reader` begins to read `value`, after all others."""
        self.of.setdefault(value, {})[reader] = edge
        if value in self._by_want:
            self._order += 1
            self._by_want[value].setdefault(edge, {})[reader] = self._order
        self._touch(value)

    def unread(self, value: int, reader: int) -> int | None:
        """`reader` reads `value` no longer; its edge, None if it had none."""
        edge = self.of.get(value, {}).pop(reader, None)
        if edge is not None:
            if value in self._by_want:
                del self._by_want[value][edge][reader]
            self._touch(value)
        return edge

    def moved(self, value: int, reader: int) -> None:
        """`reader` goes to the end of the readers of `value`."""
        readers = self.of.get(value, {})
        if reader in readers and len(readers) > 1:
            edge = self.unread(value, reader)
            assert edge is not None
            self.read(value, reader, edge)

    def search(self, value: int, mask: int) -> Found:
        """Narrow `mask` by what the readers of `value` admit, and theirs where they are tied.

        A search made before holds as long as nothing that it asked has got or lost a reader.
        """
        key = value, mask
        known = self._known.get(key)
        if known is not None:
            when, found, asked = known
            touched = self._touched
            if when == self._clock or not any(touched.get(v, 0) > when for v in asked):
                return found
        asked = []
        if self.rules.search == "depth-first" or self.rules.budget_scope == "per-branch":
            found = self._by_branch(value, mask, asked)
        else:
            found = self._breadth_first(value, mask, asked)
        # A value with one reader is hardly asked again, and what was asked is kept alive.
        if len(self.of.get(value, ())) > 1:
            self._known[key] = self._clock, found, asked
        return found

    def _edges_of(self, value: int, mask: int, follow: int | None) -> Iterable[tuple[int, int]]:
        """The readers of a value; of many only those that can matter to a search."""
        readers = self.of.get(value, {})
        if len(readers) > MANY:
            return self._relevant(value, mask, len(readers) if follow is None else follow)
        edges = self._edges[value] = tuple(readers.items())
        return edges

    def _touch(self, value: int) -> None:
        self._clock += 1
        self._edges.pop(value, None)
        self._touched[value] = self._clock

    def _breadth_first(self, value: int, mask: int, asked: list[int]) -> Found:
        """One queue, one budget. Without oddities a value is asked once, else once per path."""
        most = None if self.rules.budget is None else self.rules.budget - 1
        once = not self.rules.oddities
        seen = {value}
        by: int | None = None
        queue = asked
        queue.append(value)
        count, wants = 0, WANTS
        edges_at, push, see = self._edges.get, queue.append, seen.add
        # This loop is what placement spends its time in: a few tests for each edge, no lookups.
        for at in islice(queue, most):
            count += 1
            edges = edges_at(at)
            if edges is None:
                edges = self._edges_of(at, mask, None if most is None else most - count + 1)
            for reader, edge in edges:
                common = mask & edge
                if common != mask:
                    if not common:
                        continue
                    mask, by = common, reader
                    if not mask & (mask - 1):
                        del queue[count:]
                        return Found(mask, by, False, count)
                if edge > wants:
                    if once:
                        if reader in seen:
                            continue
                        see(reader)
                    push(reader)
        ended = len(queue) > count
        del queue[count:]
        return Found(mask, by, ended, count)

    def _relevant(self, value: int, mask: int, follow: int) -> Iterator[tuple[int, int]]:
        """The readers of a value with many, without those that cannot matter.

        In their order, up to the first that narrows `mask` and, of those that are followed, up to
        `follow`. From then on in another round with the narrower mask.
        """
        wants = self._wants(value)
        start = 0
        while True:
            narrowing = [e for e in wants if 0 != mask & e & WANTS != mask and wants[e]]
            last, edge, reader = min(
                (next((o, e, r) for r, o in wants[e].items() if o >= start) for e in narrowing
                 if next(reversed(wants[e].values())) >= start),
                default=(None, 0, 0),
            )  # fmt: skip
            tied = [
                _from(wants[e], start, last, e)
                for e in wants if e & FOLLOW and mask & e & WANTS == mask
            ]  # fmt: skip
            for _, found, known in merge(*tied):
                if follow <= 0:
                    break
                follow -= 1
                yield found, known
            if last is None:
                return
            yield reader, edge
            mask &= edge
            start = last + 1
            if not mask & (mask - 1):
                return

    def _wants(self, value: int) -> dict[int, dict[int, int]]:
        """The readers of a value by edge, each with its place in the order."""
        known = self._by_want.get(value)
        if known is None:
            known = self._by_want[value] = {}
            for reader, edge in self.of[value].items():
                self._order += 1
                known.setdefault(edge, {})[reader] = self._order
        return known

    def _by_branch(self, value: int, mask: int, asked: list[int]) -> Found:
        """The same in depth, or with a budget for each path: how far a search may go from `value`.

        Asking a value a second time takes nothing more away, so that it is asked again only with
        more of its budget left.
        """
        deep = self.rules.search == "depth-first"
        shared = self.rules.budget_scope == "shared"
        budget = self.rules.budget
        by: int | None = None
        ended = False
        left: dict[int, int] = {}
        todo: list[tuple[int, int]] = [(value, (budget or 1 << 60) - 1)]
        head = 0
        while head < len(todo) and mask & (mask - 1):
            if deep:
                at, rest = todo.pop()
            else:
                at, rest = todo[head]
                head += 1
            if rest <= 0 or (shared and budget is not None and len(asked) >= budget - 1):
                ended = True
                continue
            if left.get(at, 0) >= rest or (shared and at in left):
                continue
            left[at] = rest
            asked.append(at)
            further: list[tuple[int, int]] = []
            for reader, edge in self.of.get(at, {}).items():
                common = mask & edge
                if not common:
                    continue
                if common != mask:
                    mask, by = common, reader
                    if not mask & (mask - 1):
                        break
                if edge & FOLLOW:
                    further.append((reader, rest - 1 if not shared else rest))
            todo += reversed(further) if deep else further
        return Found(mask, by, ended and bool(mask & (mask - 1)), len(asked))


def _from(
    readers: dict[int, int], start: int, last: int | None, edge: int
) -> Iterator[tuple[int, int, int]]:
    for reader, order in readers.items():
        if order < start:
            continue
        if last is not None and order > last:
            return
        yield order, reader, edge
