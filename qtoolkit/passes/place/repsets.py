"""The engine of repsets: narrow the sets of a node by its values and readers, pick, go on."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from qtoolkit.layout import TensorRepr, bit
from qtoolkit.passes.place.demands import ANY
from qtoolkit.passes.place.form import TEXTURES, Form, State, is_open
from qtoolkit.passes.place.problem import Operand, Problem
from qtoolkit.passes.place.readers import FOLLOW, Found, Readers
from qtoolkit.passes.place.recorder import COPY, ONLY, SHARED, Recorder

FORCED = "{0}: {1}, as float16 is forced, which prefers textures"
SOURCE = "{0}: {1}, which %{2} has"
SOURCE_WILL = "{0}: {1}, all that %{2} may have"
READERS = "{0}: {1}, which %{2} admits, found by the search from {3}"
FIRST = "{0}: {1}, the kernel's first choice"
FIRST_EXECUTORCH = "{0}: {1}, first in ExecuTorch's order"
ENDED = "the search from {0} ended after {1} nodes with {2} left; the budget is {3}"


class Repsets:
    """One placement. Copies are known at once, since later searches see them as readers."""

    def __init__(
        self,
        problem: Problem,
        recorder: Recorder,
        order: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.problem, self.recorder, self.rules = problem, recorder, problem.rules
        self.readers = Readers(self.rules)
        asked = (self._by_readers, self._by_source)
        self.order = asked[::-1] if self.rules.search == "source-first" else asked
        self.copies: dict[tuple[int, TensorRepr], int] = {}
        self.copied_for: dict[int, int] = {}
        for n, operands in enumerate(problem.operands):
            for operand in operands:
                self._reads(n, operand)
        for value, readers in order.items():
            for reader in readers:
                moved = problem.find(value), problem.number.get(reader)
                if moved[0] is not None and moved[1] is not None:
                    self.readers.moved(moved[0], moved[1])

    def decide(self, n: int) -> None:
        """Decide node n, all before it being decided."""
        form = self.problem.forms[n]
        if self.problem.is_alias[n]:
            self.recorder.alias(n)
        elif form is not None:
            self._node(n, form)

    def _node(self, n: int, form: Form) -> None:
        if not form.decided:
            self._narrow(n, form)
            self._pick(n, form)
        self.recorder.hold(n)
        self._connect(n, form)

    def _narrow(self, n: int, form: Form) -> None:
        """Narrow what is open: operand by operand, then the results."""
        states, half = self.recorder.states, self.problem.limits.half
        for operand in self.problem.operands[n]:
            state, p = states[n], operand.position
            assert state is not None
            if not state[p] & (state[p] - 1):
                continue
            # A constant that is tied to nothing is packed as its reader picks.
            if operand.constant and not operand.listed and not form.partners[p]:
                continue
            if half:
                self._by_force(n, form, p)
            for narrow in self.order:
                narrow(n, form, p, operand)
                if not is_open(states[n][p]):  # type: ignore[index]
                    break
        for p in self._constrained(form):
            if is_open(states[n][p]):  # type: ignore[index]
                self._by_readers(n, form, p, None)

    def _by_force(self, n: int, form: Form, p: int) -> None:
        state = self._state(n)
        after = form.narrow(state, p, TEXTURES)
        if after != state:
            self.recorder.change(n, after, "half", (FORCED, ANY.within(after[p])), None)

    def _state(self, n: int) -> State:
        state = self.recorder.states[n]
        assert state is not None
        return state

    def _constrained(self, form: Form) -> range:
        """The positions of the results that are narrowed by what their readers want."""
        mode, first = self.rules.constrain_outputs, form.inputs
        outputs = len(form.reps.outputs)
        untied = outputs == 1 and not form.partners[first]
        if not outputs or mode == "never" or (mode == "unsynced" and not untied):
            return range(0)
        return range(first, first + 1 if self.rules.oddities else len(form.start))

    def _by_readers(self, n: int, form: Form, p: int, operand: Operand | None) -> None:
        recorder, state = self.recorder, self._state(n)
        if operand is None:
            value, result = n, p - form.inputs
        else:
            value, result = operand.values[0]
        found = self.readers.search(self._value(value, result), state[p])
        if operand is not None and self._dearer(n, form, operand, state[p], found.mask):
            return
        after = form.narrow(state, p, found.mask)
        if after != state:
            by = found.by
            assert by is not None
            why = (READERS, ANY.within(after[p]), self._name(by), recorder.value(value, result))
            recorder.change(n, after, "readers", why, self._wanted(found))
        if found.ended and is_open(after[p]):
            told = (ENDED, recorder.value(value, result), found.nodes, ANY.within(found.mask),
                    self.rules.budget)  # fmt: skip
            recorder.note(n, "budget", told)

    def _dearer(self, n: int, form: Form, operand: Operand, mask: int, wanted: int) -> bool:
        """To follow the readers would copy an operand that is larger than the result is.

        Not so in ExecuTorch, which counts no bytes; what the source has is taken instead.
        """
        if self.rules.oddities or form.inputs not in form.partners[operand.position]:
            return False
        has = self.recorder.has(operand)
        if has is None or not bit(has) & mask or bit(has) & wanted:
            return False
        (source, result), types = operand.values[0], self.problem.types
        return types[n][0].nbytes < types[source][result].nbytes

    def _wanted(self, found: Found) -> int | None:
        """The step in which the reader that narrowed a search said what it admits."""
        by = found.by
        if by is None or by >= len(self.recorder.first):
            return None
        return self.recorder.first[by]

    def _by_source(self, n: int, form: Form, p: int, operand: Operand) -> None:
        recorder, state = self.recorder, self._state(n)
        source, result = operand.values[0]
        has = recorder.has(operand)
        mask = bit(has) if has is not None else self._may_have(source, result)
        after = form.narrow(state, p, mask)
        if after != state:
            template = SOURCE if has is not None else SOURCE_WILL
            why = (template, ANY.within(after[p]), self.problem.names[source])
            recorder.change(n, after, "source", why, recorder.decided.get(source))

    def _may_have(self, source: int, result: int) -> int:
        """What a value that is not placed yet admits, as far as it is known."""
        if source >= self.problem.nodes:
            return -1
        form = self.problem.forms[source]
        if form is None or form.inputs + result >= len(form.start):
            return -1
        return form.start[form.inputs + result]

    def _pick(self, n: int, form: Form) -> None:
        recorder, state = self.recorder, self._state(n)
        after, opened = form.picked(state)
        if not opened:
            return
        template = FIRST_EXECUTORCH if self.rules.pick == "executorch" else FIRST

        def why(p: int) -> tuple[tuple[object, ...], int | None]:
            return (template, ANY.within(after[p])), recorder.demanded_by(n, form.slot(p))

        recorder.settle(n, after, "pick", why)

    def _connect(self, n: int, form: Form) -> None:
        """Sources without a representation take this one; others are copied where they differ."""
        recorder, odd = self.recorder, self.rules.oddities
        state, every = recorder.states[n], recorder.held
        assert state is not None
        # In ExecuTorch a copy stands in for its source wherever the node reads that.
        instead: dict[int, tuple[int, TensorRepr]] = {}
        for operand in self.problem.operands[n]:
            mask = state[operand.position]
            if not mask or (operand.constant and (odd or not operand.listed)):
                continue
            wants = ONLY[mask].reprs[0]
            for source, result in operand.values:
                held = every[source]
                if held and held[result] is wants and source not in instead:
                    continue
                if self.problem.is_constant(source):
                    continue
                if not held:
                    slot = form.slot(operand.position)
                    recorder.adopt(source, wants, n, self._decider(n, slot))
                    continue
                read, has = instead.get(source, (self._value(source, result), held[result]))
                if has != wants:
                    self._copy(n, source, result, read, has, wants)
                    if odd:
                        instead[source] = self.copies[read, wants], wants

    def _decider(self, n: int, slot: int) -> int:
        return self.recorder.decided.get(n, self.recorder.demanded_by(n, slot))

    def _copy(
        self, n: int, source: int, result: int, read: int, has: TensorRepr, wants: TensorRepr
    ) -> None:
        """Node n reads a copy in place of `read`, which is a value or a copy of it."""
        recorder, name = self.recorder, self.problem.names[n]
        value = recorder.value(source, result)
        copy = self.copies.get((read, wants))
        if copy is not None and not self.rules.share_transitions and self.copied_for[copy] != n:
            copy = None
        if copy is None:
            type = self.problem.types[source][result]
            copy = self.copies[read, wants] = len(self.problem.names) + len(self.copied_for)
            self.copied_for[copy] = n
            self.readers.read(read, copy, self._copy_edge(source, result))
            told = (COPY, name, value, wants, has, type.nbytes)
            recorder.note(n, "copy", told, recorder.decided.get(n))
        else:
            made_for = self.problem.names[self.copied_for[copy]]
            recorder.note(n, "copy", (SHARED, name, value, wants, has, made_for))
        self._rewire(n, read, copy)

    def _rewire(self, n: int, source: int, copy: int) -> None:
        """Node n reads a copy in place of a value; it moves to the end among the readers of all
        that it reads.
        """
        edge = self.readers.unread(source, n)
        for operand in self.problem.operands[n]:
            for s, r in operand.values:
                self.readers.moved(self._value(s, r), n)
        if edge is not None:
            self.readers.read(copy, n, edge)

    def _reads(self, n: int, operand: Operand) -> None:
        """Enter node n among the readers of an operand's values."""
        form, odd = self.problem.forms[n], self.rules.oddities
        mask = form.start[operand.position] if form is not None else 0
        if form is None or not mask or (odd and operand.listed):
            return
        item = self.problem.is_alias[n]
        edge = mask | FOLLOW if form.inputs in form.partners[operand.position] else mask
        for source, result in operand.values:
            if odd and item and result != 1 and self._untied_results(source):
                continue
            value = self._value(source, result)
            if n not in self.readers.of.get(value, ()):
                self.readers.read(value, n, edge)

    def _untied_results(self, n: int) -> bool:
        """A node has several results that are not tied to each other."""
        form = self.problem.forms[n] if n < self.problem.nodes else None
        if form is None or len(form.reps.outputs) < 2:
            return False
        return form.inputs + 1 not in form.partners[form.inputs]

    def _value(self, source: int, result: int) -> int:
        """The number under which a value's readers are kept: results that are tied share one."""
        if result == 0 or self.rules.oddities or source >= self.problem.nodes:
            return source
        form = self.problem.forms[source]
        if form is None or form.inputs + result in form.partners[form.inputs]:
            return source
        return -1 - (source << 8 | result)

    def _copy_edge(self, source: int, result: int) -> int:
        """What a copy admits: anything that the device can hold, on both sides."""
        neutral = self.problem.table.neutral
        if neutral is None:
            return ANY.mask | FOLLOW
        return self.problem.admitted(neutral.mask, source, result) | FOLLOW

    def _name(self, reader: int) -> str:
        """A reader by name; a copy by the node it was made for."""
        known = reader < self.problem.nodes
        return self.problem.names[reader if known else self.copied_for[reader]]
