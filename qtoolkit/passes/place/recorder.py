"""What every engine shares: the state of each node, and a step for everything that changes it."""

from collections.abc import Callable

from qtoolkit.draft import placing
from qtoolkit.graph import Const, Graph, Ref
from qtoolkit.layout import Reps, RepSet, TensorRepr, bit, members
from qtoolkit.passes.place.demands import ANY, TEXTURE, spoken_of
from qtoolkit.passes.place.form import TEXTURES, State
from qtoolkit.passes.place.problem import Operand, Problem
from qtoolkit.trace import NO_EDIT, Step

COPY = "%{0} reads {1} as {2}, which is {3}: {4} bytes to copy"
SHARED = "%{0} reads {1} as {2}, which is {3}, from the copy made for %{4}"


class Recorder:
    """Demands told, one step each; then states that engines change, a step for each change.

    decided[n] is the step that last changed a result of node n; demanded_by(n, slot) the one that
    first fixed what n admits there. held[n] are the representations of node n's results, () while
    nothing is known.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.states: list[State | None] = [
            None if form is None else form.start for form in problem.forms
        ]
        self.held: list[tuple[TensorRepr, ...]] = [()] * len(problem.names)
        self.reps: dict[str, Reps] = {}
        self.decided: dict[int, int] = {}
        self.limited: dict[tuple[int, int], int] = {}
        self.first: list[int] = [0] * problem.nodes
        self.count = 0
        self.copied: dict[tuple[int, int, TensorRepr], int] = {}
        self._fresh: list[Step] = []

    def fresh(self) -> list[Step]:
        """The steps since the last call."""
        found, self._fresh = self._fresh, []
        return found

    def demands(self) -> None:
        """What every node admits, what the device and the storage asked for take away."""
        problem = self.problem
        told: dict[tuple[int, tuple[object, ...]], tuple[Reps, tuple[object, ...]]] = {}
        for n, form in enumerate(problem.forms):
            if form is None or problem.is_alias[n]:
                continue
            node = problem.graph.nodes[n]
            self.first[n] = self.decided[n] = self.count
            key = id(form), problem.table.why(node)
            known = told.get(key)
            if known is None:
                template, *values = key[1]
                reps = form.reps_of(form.stated)
                admits = f"{template}: {{{len(values) + 1}}}"
                known = told[key] = reps, (admits, form.spoken, *values, reps)
            self._step(node.name, known[0], "demand", known[1], None)
            if form.stated is not form.start and form.stated != form.start:
                self._limits(n)
            if problem.limits.storage == TEXTURE:
                self._left_in_buffers(n)

    def demanded_by(self, n: int, slot: int) -> int:
        """The step that told what node n admits at a slot, limits included."""
        return self.limited.get((n, slot), self.first[n])

    def change(
        self, n: int, state: State, kind: str, why: tuple[object, ...], cause: int | None
    ) -> None:
        """Node n goes over to a state; `why` is worded after the slots that this changes."""
        form, before = self.problem.forms[n], self.states[n]
        assert form is not None and before is not None
        slots = form.changed(before, state)
        self.states[n] = state
        if before[form.inputs :] != state[form.inputs :]:
            self.decided[n] = self.count
        template, *values = why
        self._step(
            self.problem.names[n], form.reps_of(state), kind, (template, slots, *values), cause
        )

    def settle(
        self,
        n: int,
        state: State,
        kind: str,
        why: Callable[[int], tuple[tuple[object, ...], int | None]],
    ) -> None:
        """Node n goes over to a decided state: a step for each group of slots that become one
        representation; `why(position)` says why a group's first does, and by which step.
        """
        before = self.states[n]
        assert before is not None
        groups: dict[int, list[int]] = {}
        for p, (had, has) in enumerate(zip(before, state, strict=True)):
            if had != has:
                groups.setdefault(has, []).append(p)
        for has, positions in groups.items():
            now = self.states[n]
            assert now is not None
            after = tuple(has if p in positions else mask for p, mask in enumerate(now))
            words, cause = why(positions[0])
            self.change(n, after, kind, words, cause)

    def note(self, n: int, kind: str, why: tuple[object, ...], cause: int | None = None) -> None:
        """A step that changes nothing."""
        self.count += 1
        self._fresh.append(Step(NO_EDIT, kind, self.problem.names[n], why, cause))

    def hold(self, n: int) -> None:
        """Node n is decided: what its results are."""
        form, state = self.problem.forms[n], self.states[n]
        assert form is not None and state is not None
        self.held[n] = form.held(state)

    def adopt(self, n: int, has: TensorRepr, reader: int, cause: int) -> None:
        """A node without a say takes what its first reader picked."""
        self.held[n] = (has,) * len(self.problem.types[n])
        self.decided[n] = self.count
        one = ONLY[bit(has)]
        reps = Reps((), (one,) * len(self.problem.types[n]))
        why = ("{0}: {1}, as %{2}, its first reader, takes it", spoken_of([-1]), one,
               self.problem.names[reader])  # fmt: skip
        self._step(self.problem.names[n], reps, "adopt", why, cause)

    def bring(self, n: int, source: int, result: int, wants: TensorRepr) -> None:
        """Node n reads a value in a representation: a copy, or one made before, where it has
        another.
        """
        has, key = self.held[source][result], (source, result, wants)
        if has == wants:
            return
        name, value = self.problem.names[n], self.value(source, result)
        made_for = self.copied.get(key)
        if made_for != n and not self.problem.rules.share_transitions:
            made_for = None
        if made_for is None:
            self.copied[key] = n
            nbytes = self.problem.types[source][result].nbytes
            told: tuple[object, ...] = (COPY, name, value, wants, has, nbytes)
        else:
            told = (SHARED, name, value, wants, has, self.problem.names[made_for])
        self.note(n, "copy", told, self.decided.get(n))

    def alias(self, n: int) -> None:
        """An item of a node of several results lies where that result does."""
        operand = self.problem.operands[n][0]
        source, result = operand.values[0]
        if not self.held[source]:
            return
        has = self.held[source][result]
        self.held[n] = (has,)
        one = ONLY[bit(has)]
        reps = Reps((one,), (one,), ((0, -1),))
        why = ("{0}: {1}, where %{2} put it", spoken_of([0, -1]), one, self.problem.names[source])
        cause = self.decided.get(source)
        self.decided[n] = self.count
        self._step(self.problem.names[n], reps, "alias", why, cause)

    def finish(self) -> Graph:
        """The graph with every node's representations."""
        return self.problem.graph.placed(self.reps)

    def has(self, operand: Operand) -> TensorRepr | None:
        """The representation of the (first) value that an operand reads; None of constants and
        before it is known.
        """
        source, result = operand.values[0]
        held = self.held[source]
        return held[result] if held else None

    def value(self, n: int, result: int = 0) -> Ref | Const:
        """A value by its number."""
        name = self.problem.names[n]
        return Const(name) if self.problem.is_constant(n) else Ref(name, result)

    def _limits(self, n: int) -> None:
        """A step for each slot that the device, a tie or the storage asked for takes from."""
        problem, form = self.problem, self.problem.forms[n]
        assert form is not None
        now = form.stated
        for p, (had, left) in enumerate(zip(form.stated, form.start, strict=True)):
            if had == left:
                continue
            why, kind = self._lost(n, p, had, left)
            slot = form.slot(p)
            now = (*now[:p], left, *now[p + 1 :])
            cause = self.first[n]
            self.limited[n, slot] = self.count
            if slot < 0:
                self.decided[n] = self.count
            told = ("{0}: {1}, {2}", spoken_of([slot]), ANY.within(left), why)
            self._step(problem.names[n], form.reps_of(now), kind, told, cause)

    def _lost(self, n: int, p: int, had: int, left: int) -> tuple[str, str]:
        """Why a slot lost representations, and the kind of the step that says so."""
        problem, form = self.problem, self.problem.forms[n]
        assert form is not None
        over, table = problem.limits.over, problem.table
        types = problem.types_at(n, p)
        for r in members(had & ~left):
            for type in types:
                why = over(r, type, table)
                if why is not None:
                    return f"as {why}", "bound"
        for q in form.partners[p]:
            if any(
                over(r, type, table)
                for r in members(had & ~left)
                for type in problem.types_at(n, q)
            ):
                return f"as {spoken_of([form.slot(q)])}, tied to it, is too large", "bound"
        if problem.wished(had) != had:
            return f"as storage={problem.limits.storage!r} asks", "bound"
        return "as what it is tied to admits no more", "tie"

    def _left_in_buffers(self, n: int) -> None:
        """What stays in a buffer though textures are asked for, and why."""
        problem, form = self.problem, self.problem.forms[n]
        assert form is not None
        demanded = problem.demanded[n]
        for p, mask in enumerate(form.start):
            if not mask or mask & TEXTURES:
                continue
            slot = form.slot(p)
            repset = demanded.at(slot) if demanded else None
            told = self._in_buffer_why(n, p, repset)
            why = ("{0}: stays in a buffer, because {1}", spoken_of([slot]), told)
            self.note(n, "buffer", why)

    def _in_buffer_why(self, n: int, p: int, demanded: RepSet | None) -> str:
        problem, node = self.problem, self.problem.graph.nodes[n]
        types = problem.types_at(n, p)
        for r in demanded or ():
            for type in types:
                over = problem.limits.over(r, type, problem.table)
                if over is not None:
                    return over
        if node.op == "input":
            return "an input arrives contiguous"
        type = max(types, key=lambda t: t.numel)
        if not type.dtype.floating and type.dtype.value not in ("int8", "uint8"):
            return f"{type.dtype} has no texture representation"
        if node.kernel:
            return f"kernel {node.kernel} takes it from buffers only"
        return "it has no kernel"

    def _step(
        self, name: str, reps: Reps, kind: str, why: tuple[object, ...], cause: int | None
    ) -> None:
        self.reps[name] = reps
        self.count += 1
        self._fresh.append(Step(placing(name, reps), kind, name, why, cause))


ONLY = {bit(r): RepSet([r]) for r in members(-1)}
