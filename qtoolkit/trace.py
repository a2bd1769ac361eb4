"""What each pass did: steps that replay, and the traces made of them."""

import gc
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from html import escape
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from qtoolkit.draft import Draft, Edit, apply_edits
from qtoolkit.errors import PassError, UnknownName
from qtoolkit.graph import Graph
from qtoolkit.layout import ALL_REPRS, TensorRepr

if TYPE_CHECKING:
    import pandas as pd

NO_EDIT = Edit()
CHECKPOINT_EVERY = 256


class Step(NamedTuple):
    """One decision of a pass: the edit, its kind, the node it is about, why, and what caused it.

    `why` is a format string followed by its values, worded only when read. `cause` is the index
    of an earlier step of the same pass. A refusal is a step without an edit.
    """

    edit: Edit
    kind: str
    node: str
    why: tuple[Any, ...]
    cause: int | None = None

    @property
    def reason(self) -> str:
        """`why` in words."""
        template, *values = self.why
        return str(template).format(*values)

    def __str__(self) -> str:
        return f"{self.kind} %{self.node}: {self.reason}"


Pass = Callable[[Graph], Generator[Step, None, Graph]]


@dataclass(frozen=True, eq=False)
class PassTrace:
    """One pass as it ran: the graph before and after, every step, and seconds spent."""

    name: str
    before: Graph
    after: Graph
    steps: tuple[Step, ...]
    seconds: float

    @cached_property
    def _checkpoints(self) -> dict[int, Graph]:
        return {0: self.before}

    def graph_at(self, index: int) -> Graph:
        """The graph after the first `index` steps; 0 is `before`, len(steps) is `after`."""
        if not 0 <= index <= len(self.steps):
            raise UnknownName(f"{self.name} has steps 0..{len(self.steps)}, not {index}")
        if index == len(self.steps):
            return self.after
        start = max(i for i in self._checkpoints if i <= index)
        draft = Draft(self._checkpoints[start])
        for i in range(start, index):
            if i % CHECKPOINT_EVERY == 0 and i not in self._checkpoints:
                self._checkpoints[i] = draft.finish()
            draft.apply(self.steps[i].edit)
        return draft.finish()

    def about(self, node: str) -> tuple[Step, ...]:
        """The steps about one node."""
        return tuple(s for s in self.steps if s.node == node)

    def why(self, node: str, operand: int | None = None) -> "Chain":
        """The chain of steps that fixed an operand's representation of a node, causes first.

        operand i >= 0 is input i of the schema, -1 - j result j; None asks for every decision about
        the node. Raises UnknownName for a node or operand that is not there.
        """
        if node not in self.before and node not in self.after:
            raise UnknownName(f"no node %{node} in this trace; see .after.text()")
        if operand is None:
            return Chain(self.about(node))
        found = chain(self.steps, node, operand)
        if not found:
            spoken = {o for s in self.about(node) for o in changed_operands(s, node)}
            known = ", ".join(map(str, sorted(spoken))) or "none: nothing was decided"
            raise UnknownName(f"%{node} has no operand {operand} with representations; {known}")
        return found

    def why_not(self, node: str, operand: int, representation: TensorRepr | str) -> "Step | None":
        """The step that struck a representation out of an operand's set; the demand, if it never
        was in it; None if the operand has it.

        representation: a TensorRepr, or its text, e.g. 'texture_3d/channels'. Raises UnknownName.
        """
        wanted = _representation(representation)
        self.why(node, operand)
        for step in self.about(node):
            if operand in changed_operands(step, node):
                left = dict(step.edit.reps)[node].at(operand)
                if left is None or wanted not in left:
                    return step
        return None

    def text(self) -> str:
        """The steps as text, one a line: the form that golden tests hold."""
        lines = [
            f"{i}. {step}" + ("" if step.cause is None else f" (because of {step.cause})")
            for i, step in enumerate(self.steps)
        ]
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        kinds: dict[str, int] = {}
        for step in self.steps:
            kinds[step.kind] = kinds.get(step.kind, 0) + 1
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no steps"
        return f"{self.name}: {told} in {1e3 * self.seconds:.1f} ms"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{i}</td><td>{escape(s.kind)}</td><td>{escape(s.node)}</td>"
            f"<td style='text-align:left'>{escape(s.reason)}</td></tr>"
            for i, s in enumerate(self.steps)
        )
        head = "<tr><th></th><th>kind</th><th>node</th><th>why</th></tr>"
        return f"<p>{escape(repr(self))}</p><table>{head}{rows}</table>"


@dataclass(frozen=True, eq=False)
class Trace:
    """The passes of one compilation, in order, for one backend."""

    backend: str
    passes: tuple[PassTrace, ...]

    def __getitem__(self, name: str) -> PassTrace:
        for p in self.passes:
            if p.name == name:
                return p
        known = ", ".join(p.name for p in self.passes)
        raise UnknownName(f"no pass {name!r} in this trace; it has {known}")

    def __iter__(self) -> Iterator[PassTrace]:
        return iter(self.passes)

    @property
    def result(self) -> Graph:
        """The compiled graph."""
        return self.passes[-1].after

    def why(self, node: str, operand: int | None = None) -> "Chain":
        """The chain of steps that fixed a node, or representation of one operand, causes first.

        operand i >= 0 is input i of the kernel's schema, -1 its result; None asks for every
        decision about the node. Raises UnknownName if no graph of the trace has the node.
        """
        if operand is not None:
            return self["place"].why(node, operand)
        if not any(node in p.before or node in p.after for p in self.passes):
            raise UnknownName(f"no node %{node} in this trace; see .result.text()")
        return Chain(s for p in self.passes for s in p.about(node))

    def why_not(self, node: str, operand: int, representation: TensorRepr | str) -> Step | None:
        """The step of `place` that struck a representation out; see PassTrace.why_not."""
        return self["place"].why_not(node, operand, representation)

    def __repr__(self) -> str:
        return f"Trace for {self.backend}\n" + "\n".join(f"  {p!r}" for p in self.passes)

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(repr(p))}</li>" for p in self.passes)
        return f"<p>Trace for {escape(self.backend)}</p><ol>{items}</ol>"


class Chain(tuple[Step, ...]):
    """Steps that led to each other, the first cause first: as text, table or, by qt.draw, path."""

    def __str__(self) -> str:
        return "\n".join(f"{i}. {step}" for i, step in enumerate(self, 1))

    __repr__ = __str__

    def to_dataframe(self) -> "pd.DataFrame":
        """A row for each step: kind, node, why."""
        import pandas as pd

        rows = [{"kind": s.kind, "node": s.node, "why": s.reason} for s in self]
        return pd.DataFrame(rows, columns=["kind", "node", "why"])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(s.kind)}</td><td>{escape(s.node)}</td>"
            f"<td style='text-align:left'>{escape(s.reason)}</td></tr>"
            for s in self
        )
        return f"<table><tr><th>kind</th><th>node</th><th>why</th></tr>{rows}</table>"


def chain(steps: Sequence[Step], node: str, operand: int) -> Chain:
    """The last step that changed `operand`'s repset of `node`, preceded by its causes."""
    at: int | None = None
    for i, step in enumerate(steps):
        if step.node == node and operand in changed_operands(step, node):
            at = i
    found: list[Step] = []
    while at is not None:
        found.append(steps[at])
        at = steps[at].cause
    return Chain(reversed(found))


def _representation(told: TensorRepr | str) -> TensorRepr:
    if isinstance(told, TensorRepr):
        return told
    try:
        return TensorRepr.parse(told)
    except (KeyError, ValueError) as why:
        known = ", ".join(map(str, ALL_REPRS[:3]))
        raise UnknownName(f"representation {told!r}; they read like {known}") from why


def changed_operands(step: Step, node: str) -> tuple[int, ...]:
    """The operands of `node` that a placement step speaks about."""
    return tuple(step.why[1]) if step.edit.reps and step.node == node else ()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cyclic garbage collector out of a block that makes many lasting objects.

    Steps form no cycles; with them alive every full collection takes longer than the one before,
    half the time of a pass over 20 000 nodes.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def run_pass(name: str, run: Pass, graph: Graph) -> PassTrace:
    """Run a pass to its end and keep what it did.

    Raises PassError if replaying the steps does not give the graph that the pass returned.
    """
    steps: list[Step] = []
    running = run(graph)
    with collector_paused():
        start = perf_counter()
        while True:
            try:
                steps.append(next(running))
            except StopIteration as stop:
                after: Graph = stop.value
                break
        seconds = perf_counter() - start
    replayed = apply_edits(graph, [s.edit for s in steps if s.edit])
    if replayed.nodes != after.nodes or replayed.outputs != after.outputs:
        differ = [a.name for a, b in zip(replayed.nodes, after.nodes, strict=False) if a != b]
        raise PassError(
            f"pass {name} changed %{(differ or ['return'])[0]} without a step; yield a Step for "
            "every edit"
        )
    # Replaying drops constants that nobody reads; a pass may leave those that were there.
    left = {k for k, c in after.constants.items() if graph.constants.get(k) is c}
    made = {k: c for k, c in after.constants.items() if k in replayed.constants or k not in left}
    if replayed.constants != made:
        raise PassError(f"pass {name} changed a constant without a step; put it into the Edit")
    return PassTrace(name, graph, after, tuple(steps), seconds)
