"""The engine of proposals, ExecuTorch's up to July 2025: an op proposes one storage and layout.

Results take the op's proposal; without one they keep what the first operand has, else what the
first reader with an opinion proposes, else the default. Each operand is brought to its own proposal
(PR 12616), else to the op's. A demand states a proposal as a repset of one; a set of several is
none.
"""

from collections.abc import Iterator

from qtoolkit.layout import Layout, Storage, TensorRepr, bit
from qtoolkit.passes.place.demands import ANY
from qtoolkit.passes.place.form import Form, State, is_open
from qtoolkit.passes.place.problem import Operand, Problem
from qtoolkit.passes.place.recorder import ONLY, Recorder

DEFAULT = TensorRepr(Storage.TEXTURE_3D, Layout.WIDTH)
RESULT = "{0}: {1}, the proposal for the result, as none is stated for the input"
RESULT_OFF = "{0}: {1}, the proposal for the result; input preferences are off"
KEPT = "{0}: {1}, which %{2} has; the op proposes nothing"
READER = "{0}: {1}, which %{2} proposes; the op itself proposes nothing"
NOBODY = "{0}: {1}, the default: neither the op nor a reader proposes anything"


class Proposals:
    """One placement by proposals."""

    def __init__(self, problem: Problem, recorder: Recorder) -> None:
        self.problem, self.recorder, self.rules = problem, recorder, problem.rules
        self.readers: dict[int, list[int]] = {}
        for n, operands in enumerate(problem.operands):
            for operand in operands:
                for source, _ in operand.values:
                    self.readers.setdefault(source, []).append(n)

    def decide(self, n: int) -> None:
        """Decide node n, all before it being decided."""
        form = self.problem.forms[n]
        if self.problem.is_alias[n]:
            self.recorder.alias(n)
        elif form is not None:
            self._results(n, form)
            for operand in self.problem.operands[n]:
                self._operand(n, form, operand)
            self.recorder.hold(n)
            self._connect(n)

    def _state(self, n: int) -> State:
        state = self.recorder.states[n]
        assert state is not None
        return state

    def _results(self, n: int, form: Form) -> None:
        """Decide the results that the op proposes nothing for."""
        state = self._state(n)
        opened = [p for p in range(form.inputs, len(state)) if is_open(state[p])]
        if not opened:
            return
        first = self.problem.operands[n][:1]
        has = self.recorder.has(first[0]) if first else None
        if has is not None and bit(has) & state[opened[0]]:
            why: tuple[object, ...] = (KEPT, ONLY[bit(has)], self._name(first[0].values[0][0]))
            self._set(n, opened, bit(has), "source", why)
            return
        for reader, proposed in self._opinions(n, {n}):
            if proposed & state[opened[0]]:
                why = (READER, ONLY[proposed], self._name(reader))
                self._set(n, opened, proposed, "readers", why)
                return
        left = bit(DEFAULT) & state[opened[0]] or form.first(opened[0], state[opened[0]])
        self._set(n, opened, left, "pick", (NOBODY, ONLY[left]))

    def _opinions(self, n: int, seen: set[int]) -> Iterator[tuple[int, int]]:
        """What readers propose for what they make, nearest first along each path."""
        todo = list(reversed(self.readers.get(n, ())))
        while todo:
            reader = todo.pop()
            if reader in seen:
                continue
            seen.add(reader)
            form = self.problem.forms[reader]
            if form is not None and not self.problem.is_alias[reader]:
                mask = form.start[form.inputs]
                if mask and not is_open(mask):
                    yield reader, mask
                    continue
            todo += reversed(self.readers.get(reader, ()))

    def _operand(self, n: int, form: Form, operand: Operand) -> None:
        p, state = operand.position, self._state(n)
        stated = form.reps.at(form.slot(p))
        result = state[form.inputs] if form.inputs < len(state) else bit(DEFAULT)
        if self.rules.input_preferences and stated is not None and not is_open(state[p]):
            return
        wants = result if stated is None or not self.rules.input_preferences else state[p] & result
        wants = wants or form.first(p, state[p])
        template = RESULT if self.rules.input_preferences else RESULT_OFF
        self._set(n, [p], wants, "proposal", (template, ANY.within(wants)))

    def _set(
        self, n: int, positions: list[int], mask: int, kind: str, why: tuple[object, ...]
    ) -> None:
        state = list(self._state(n))
        for p in positions:
            state[p] = mask
        if tuple(state) != self._state(n):
            cause = self.recorder.first[n]
            self.recorder.change(n, tuple(state), kind, why, cause)

    def _connect(self, n: int) -> None:
        recorder, problem = self.recorder, self.problem
        state = self._state(n)
        for operand in problem.operands[n]:
            mask = state[operand.position]
            for source, result in operand.values:
                if problem.is_constant(source) or not mask:
                    continue
                wants = ONLY[mask].only
                if not recorder.held[source]:
                    recorder.adopt(source, wants, n, recorder.decided.get(n, 0))
                recorder.bring(n, source, result, wants)

    def _name(self, n: int) -> str:
        return self.problem.names[n]
