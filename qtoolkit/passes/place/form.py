"""Forms: what all nodes of one demand have in common, and the states they pass through."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qtoolkit.layout import Reps, RepSet, Storage, TensorRepr, bit, members, span
from qtoolkit.passes.place.demands import ANY, Slots, spoken_of
from qtoolkit.passes.rules import PlaceRules

State = tuple[int, ...]  # a mask for each input position, then one for each result
TEXTURES = sum(bit(r) for r in members(-1) if r.storage is Storage.TEXTURE_3D)
BUFFERS = sum(bit(r) for r in members(-1) if r.storage is Storage.BUFFER)
_FIRST: dict[int, int] = {}  # a memo: ExecuTorch takes the same one of a mask each time


def is_open(mask: int) -> bool:
    """More than one representation is left."""
    return bool(mask & (mask - 1))


@dataclass(eq=False, slots=True)
class Form:
    """What all nodes of one demand have in common: what the table states, what limits and ties
    leave of it to start from, how a state narrows.

    Positions count inputs from 0 and go on with the results; `slot` turns them into the slots of
    Reps. Every state that a node passes through is made once and shared.
    """

    reps: Reps
    stated: State
    start: State
    inputs: int
    partners: tuple[tuple[int, ...], ...]
    rules: PlaceRules
    orders: tuple[tuple[int, ...], ...]
    decided: bool = False
    _narrowed: dict[tuple[State, int, int], State] = field(default_factory=dict)
    _reps: dict[State, Reps] = field(default_factory=dict)
    _picked: dict[State, tuple[State, tuple[int, ...]]] = field(default_factory=dict)
    _changed: dict[tuple[State, State], Slots] = field(default_factory=dict)
    _held: dict[State, tuple[TensorRepr, ...]] = field(default_factory=dict)

    @property
    def spoken(self) -> Slots:
        """The slots that have representations."""
        return self.changed((0,) * len(self.stated), self.stated)

    def slot(self, position: int) -> int:
        """The slot of a position: i for input i, -1 - j for result j."""
        return position if position < self.inputs else self.inputs - 1 - position

    def position(self, slot: int) -> int:
        """The position of a slot."""
        return slot if slot >= 0 else self.inputs - 1 - slot

    def reps_of(self, state: State) -> Reps:
        """A state as Reps, each set in its order of preference."""
        known = self._reps.get(state)
        if known is None:
            known = self._reps[state] = self._as_reps(state)
        return known

    def held(self, state: State) -> tuple[TensorRepr, ...]:
        """The representations of the results in a state that is decided."""
        known = self._held.get(state)
        if known is None:
            known = tuple(r.only for r in self.reps_of(state).outputs)
            self._held[state] = known
        return known

    def narrow(self, state: State, position: int, mask: int) -> State:
        """The state after one position keeps to `mask`, and those tied to it to what goes with it.

        The same state where nothing is gained: no representation in common, or a tie that refuses.
        """
        key = state, position, mask
        known = self._narrowed.get(key)
        if known is None:
            known = self._narrowed[key] = self._narrow(state, position, mask)
        return known

    def picked(self, state: State) -> tuple[State, tuple[int, ...]]:
        """The state with everything decided, and the positions that were still open."""
        known = self._picked.get(state)
        if known is None:
            known = self._picked[state] = self._pick(state)
        return known

    def first(self, position: int, mask: int) -> int:
        """The representation of a mask that is picked."""
        if self.rules.pick == "executorch":
            if mask not in _FIRST:
                _FIRST[mask] = bit(executorch_order(ANY.within(mask))[0])
            return _FIRST[mask]
        return next(b for b in self.orders[position] if b & mask)

    def changed(self, before: State, after: State) -> Slots:
        """The slots whose mask differs, inputs first."""
        known = self._changed.get((before, after))
        if known is None:
            found = (p for p, (a, b) in enumerate(zip(before, after, strict=True)) if a != b)
            known = self._changed[before, after] = spoken_of([self.slot(p) for p in found])
        return known

    def _pick(self, state: State) -> tuple[State, tuple[int, ...]]:
        opened = tuple(p for p, mask in enumerate(state) if is_open(mask))
        for p in opened:
            if not is_open(state[p]):
                continue
            chosen = self.first(p, state[p])
            if self.rules.pick == "executorch":
                state = (*state[:p], chosen, *state[p + 1 :])
            else:
                state = self.narrow(state, p, chosen)
                if is_open(state[p]):  # a tie of ExecuTorch's refused; it would pick all the same
                    state = (*state[:p], chosen, *state[p + 1 :])
        return state, opened

    def _narrow(self, state: State, position: int, mask: int) -> State:
        mine = state[position]
        left = mine & mask
        if not left or left == mine:
            return state
        around = _span(self.rules)
        partners = self.partners[position]
        if self.rules.oddities:
            first = self.inputs
            tied = first < len(state) and any(p < first for p in self.partners[first])
            if position < first and tied and left & ~span(state[first]):
                return state
        else:
            for p in partners:
                left &= around(state[p])
            if not left:
                return state
        fitting = around(left)
        after = list(state)
        after[position] = left
        for p in partners:
            after[p] &= fitting
            if not after[p]:
                return state
        return tuple(after)

    def _as_reps(self, state: State) -> Reps:
        n = self.inputs
        stated = padded(self.reps.inputs, n)
        ins = tuple(
            None if r is None and not mask else _part(r or ANY, mask)
            for r, mask in zip(stated, state[:n], strict=True)
        )
        outs = tuple(_part(r, m) for r, m in zip(self.reps.outputs, state[n:], strict=True))
        return Reps(ins, outs, self.reps.ties)


def executorch_order(repset: RepSet) -> tuple[TensorRepr, ...]:
    """The representations in the order in which ExecuTorch 1.5.1 takes them: textures first, then
    as CPython iterates over a set of small integers, which depends on the size of its table.
    """
    found = []
    for storage in (Storage.TEXTURE_3D, Storage.BUFFER):
        mine = {int(r.layout): r for r in repset if r.storage is storage}
        # The table has 8 slots up to 4 elements, 32 up to 19; a small int hashes to itself.
        slots = 8 if len(mine) < 5 else 32
        found += [mine[layout] for layout in sorted(mine, key=lambda v: (v % slots, v))]
    return tuple(found)


def _part(stated: RepSet, mask: int) -> RepSet:
    """A mask in the order of a demand; a proposal that was overruled is no part of it."""
    return stated.within(mask) if not mask & ~stated.mask else ANY.within(mask)


def padded(inputs: Sequence[RepSet | None], width: int) -> tuple[RepSet | None, ...]:
    """The repsets of inputs, None for the positions past the last."""
    return (*inputs, *[None] * (width - len(inputs)))


def _span(rules: PlaceRules) -> Callable[[int], int]:
    """What goes with a mask at the other end of a tie."""
    return span if rules.ties == "packed-dim" else int
