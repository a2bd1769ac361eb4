"""Rules that rewrite a graph: what a rule may answer, and the engine that makes steps of it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qtoolkit.draft import Draft, Edit
from qtoolkit.graph import Arg, Constant, Node, Ref
from qtoolkit.trace import NO_EDIT, Step


@dataclass(frozen=True, slots=True)
class Note:
    """Something a reader should know about a rewrite, beside its reason."""

    kind: str
    why: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`node` takes the place of `matched`, the last of which gave the value it now gives.

    The new node bears the name of a matched one and stands where that stood. Matched nodes that
    something else still reads stay. constants are added, `insert` goes right before `node`, `also`
    replaces other nodes of the same names; notes become steps of their own. `kind` is the step's.
    """

    node: Node
    matched: tuple[str, ...]
    why: tuple[Any, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    insert: tuple[Node, ...] = ()
    also: tuple[Node, ...] = ()
    kind: str = "fuse"


@dataclass(frozen=True, slots=True)
class Forward:
    """Readers of `matched`'s value read `value` instead; no node is made."""

    value: Arg
    matched: tuple[str, ...]
    why: tuple[Any, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reject:
    """The rule is about this node but does not apply, and why."""

    why: tuple[Any, ...]


Answer = Rewrite | Forward | Reject | None
Rule = Callable[[Node, Draft], Answer]


def apply_rules(draft: Draft, rules: Sequence[Rule]) -> Generator[Step, None, None]:
    """Offer every node, in order, to the rules until one answers; yield what was decided."""
    for name in draft.order():
        for rule in rules:
            answer = rule(draft[name], draft) if name in draft else None
            if answer is None:
                continue
            yield from _steps(name, answer, draft)
            break


def _steps(
    name: str, answer: Rewrite | Forward | Reject, draft: Draft
) -> Generator[Step, None, None]:
    if isinstance(answer, Reject):
        yield Step(NO_EDIT, "reject", name, answer.why)
    elif isinstance(answer, Forward):
        yield Step(draft.apply(forward_edit(draft, answer)), "forward", name, answer.why)
    else:
        edit = draft.apply(rewrite_edit(draft, answer))
        yield Step(edit, answer.kind, answer.node.name, answer.why)
        for note in answer.notes:
            yield Step(NO_EDIT, note.kind, answer.node.name, note.why)


def rewrite_edit(draft: Draft, answer: Rewrite) -> Edit:
    """The edit that a Rewrite stands for; the new node stands where its namesake stood."""
    name, last = answer.node.name, answer.matched[-1]
    renamed = () if name == last else ((Ref(last), Ref(name)),)
    return Edit(
        insert=answer.insert,
        before=name if answer.insert else None,
        replace=(answer.node, *answer.also),
        rename=renamed,
        remove=removable(draft, answer.matched, kept=name),
        constants=answer.constants,
    )


def forward_edit(draft: Draft, answer: Forward) -> Edit:
    """The edit that a Forward stands for."""
    renamed = ((Ref(answer.matched[-1]), answer.value),)
    return Edit(rename=renamed, remove=removable(draft, answer.matched), constants=answer.constants)


def removable(draft: Draft, matched: Sequence[str], kept: str | None = None) -> tuple[str, ...]:
    """Those of `matched` that nothing reads after the edit, last first.

    The last one's readers are sent elsewhere; `kept` is rewritten and reads none of them.
    """
    gone: list[str] = []
    for name in reversed(matched):
        readers = set(draft.readers(name)) - set(gone) - {kept}
        free = name == matched[-1] or not (readers or draft.returned(name))
        if free and name != kept and name not in gone:
            gone.append(name)
    return tuple(gone)
