"""Widgets for notebooks: a slider over the steps of a placement, switches, an edited preference.

Under its controls a widget has a picture and a table, which the controls redraw. Both are ordinary
outputs: they stay when a notebook was run without anyone to move a slider (papermill), or is read
as HTML.
"""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import ipywidgets

from qtoolkit import draw
from qtoolkit.draw.narrowing import step_words
from qtoolkit.errors import QtoolkitError, UnknownName
from qtoolkit.graph import Graph, Node, TensorType
from qtoolkit.interop.executorch.recorded import Delegate
from qtoolkit.layout import Layout, Reps, RepSet, TensorRepr
from qtoolkit.passes.place import Table
from qtoolkit.passes.place.demands import Extents
from qtoolkit.passes.rules import CHOICES, PlaceRules
from qtoolkit.placement import Placement, place, priced, rules_of, table_of

BUDGETS = (None, 1, 4, 16, 64, 256)
WIDE = ipywidgets.Layout(width="340px")


@dataclass(frozen=True, slots=True)
class Twin:
    """What stays of a widget without a kernel: a picture (PNG), a table (HTML), both in words."""

    picture: bytes
    table: str
    text: str

    @property
    def outputs(self) -> tuple[dict[str, str], dict[str, str]]:
        """The picture and the table as a notebook stores them."""
        picture = {"image/png": b64encode(self.picture).decode(), "text/plain": self.text}
        return picture, {"text/html": self.table, "text/plain": self.text}


@dataclass(frozen=True, eq=False)
class Live:
    """Controls, and the twin of the state that they are in."""

    controls: tuple[Any, ...]
    twin: Callable[[], Twin]

    @property
    def widget(self) -> ipywidgets.Widget:
        """The controls as one widget."""
        flow = ipywidgets.Layout(flex_flow="row wrap")
        return ipywidgets.Box(self.controls, layout=flow)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.widget)  # type: ignore[no-untyped-call]
        shown = [
            display(output, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            for output in self.twin().outputs
        ]

        def redraw(change: Any) -> None:
            for handle, output in zip(shown, self.twin().outputs, strict=True):
                handle.update(output, raw=True)

        for control in self.controls:
            control.observe(redraw, "value")


def stepper(placement: Placement, start: int | None = None) -> Live:
    """A slider over the steps of a placement: the sets as they narrow, and the cause of each step.

    start: how many steps are taken at first, all without. Raises UnknownName for more than there
    are.
    """
    trace = placement.trace
    count = len(trace.steps)
    first = count if start is None else start
    if not 0 <= first <= count:
        raise UnknownName(f"step {first}: the placement has steps 0..{count}")
    slider = ipywidgets.IntSlider(
        first, 0, count, description="steps taken", continuous_update=False,
        layout=ipywidgets.Layout(width="780px"),
    )  # fmt: skip

    def twin() -> Twin:
        now: int = slider.value
        last = trace.steps[now - 1] if now else None
        told = [] if last is None else [i for i in (last.cause, now - 1) if i is not None]
        rows = [(i, trace.steps[i].kind, f"%{trace.steps[i].node}", trace.steps[i].reason)
                for i in told]  # fmt: skip
        table = _table(("step", "kind", "node", "why"), rows)
        words = f"after {now} of {count} steps: {step_words(trace, now)}"
        return Twin(draw.png(draw.repsets(placement, now)), table, words)

    return Live((slider,), twin)


def switches(
    graph: Graph | Delegate, table: str | Table, rules: PlaceRules | None = None, **changed: object
) -> Live:
    """A menu for each switch of PlaceRules; the placement by `rules` beside that by the menus.

    rules: those of the table's date without. changed: what the menus start with, e.g.
    constrain_outputs="never". Raises UnknownName for a switch or a choice that is not there.
    """
    base = rules or rules_of(table if isinstance(table, str) else table.name)
    unknown = set(changed) - set(PlaceRules.__dataclass_fields__)
    if unknown:
        known = ", ".join(PlaceRules.__dataclass_fields__)
        raise UnknownName(f"switch {sorted(unknown)[0]!r}; the switches are {known}")
    first = replace(base, **changed)  # type: ignore[arg-type]
    before = place(graph, table, base)
    menus = {name: _menu(name, options, getattr(first, name)) for name, options in
             (CHOICES | {"budget": BUDGETS}).items()}  # fmt: skip

    def twin() -> Twin:
        chosen = {name: menu.value for name, menu in menus.items()}
        moved = {name: v for name, v in chosen.items() if v != getattr(base, name)}
        label = ", ".join(f"{name}={v}" for name, v in moved.items()) or "no switch moved"
        try:
            after = place(graph, table, replace(base, **chosen))
        except QtoolkitError as why:
            return _beside((before,), ("before",), f"{label}: {why}")
        return _beside((before, after), ("before", label))

    return Live(tuple(menus.values()), twin)


def preference(
    graph: Graph,
    node: str,
    table: str | Table = "qtoolkit",
    rules: PlaceRules | None = None,
    prefer: str | None = None,
    only: bool = False,
) -> Live:
    """Edit what a node's result would best be, and place the graph again.

    prefer: the first choice at first, e.g. 'texture_3d/width'; the present second one without.
    only: nothing else is admitted, which costs what the stated order of preference says. What is
    tied to the result follows. Raises UnknownName for a node without a choice.
    """
    before = place(graph, table, rules)
    if node not in before.graph:
        raise UnknownName(f"no node %{node}; the table of the placement lists them")
    base, prepared = table_of(table), before.trace.before
    stated = base.demands(prepared[node], prepared)
    options = {} if stated is None else {str(r): r for r in stated.outputs[0]}
    if len(options) < 2:
        raise UnknownName(f"%{node} has no choice: its result is {', '.join(options) or 'free'}")
    if prefer is not None and prefer not in options:
        raise UnknownName(f"%{node} cannot be {prefer!r}; choose one of {', '.join(options)}")
    menu = _menu(f"%{node} prefers", options.items(), options[prefer or list(options)[1]])
    must = ipywidgets.Checkbox(only, description="and nothing else", indent=False, layout=WIDE)

    def twin() -> Twin:
        edited = Preferring(base, node, menu.value, must.value)
        words = f"%{node} {'must be' if must.value else 'prefers'} {menu.value}"
        note = "the rules pick in ExecuTorch's order, whatever an op prefers"
        try:
            after = place(prepared, edited, before.rules, limits=before.limits)
        except QtoolkitError as why:
            return _beside((before,), ("as stated",), f"{words}: {why}")
        if must.value:
            after = priced(after.trace, base, before.rules, before.limits)
        idle = before.rules.pick == "executorch" and not must.value
        return _beside((before, after), ("as stated", words), note if idle else "")

    return Live((menu, must), twin)


@dataclass(frozen=True)
class Preferring:
    """A table in which one node's result, and what is tied to it, is best `wanted`.

    only: it admits nothing else.
    """

    table: Table
    node: str
    wanted: TensorRepr
    only: bool = False

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def neutral(self) -> RepSet | None:
        return self.table.neutral

    def demands(self, node: Node, graph: Graph) -> Reps | None:
        stated = self.table.demands(node, graph)
        if stated is None or node.name != self.node:
            return stated
        tied = {slot for tie in stated.ties if -1 in tie for slot in tie} | {-1}
        for slot in tied:
            repset = stated.at(slot)
            if repset is not None and self.wanted in repset:
                rest = () if self.only else repset
                stated = stated.replaced(slot, RepSet([self.wanted, *rest]))
        return stated

    def why(self, node: Node) -> tuple[object, ...]:
        told = self.table.why(node)
        if node.name != self.node:
            return told
        return "{0}: {1}, as was asked for", "only" if self.only else "first", self.wanted

    def extents(self, type: TensorType, layout: Layout) -> Extents | None:
        return self.table.extents(type, layout)


def _menu(name: str, options: Any, value: object) -> ipywidgets.Dropdown:
    """A menu of (words, value) pairs, or of values that are their own words."""
    pairs = [o if isinstance(o, tuple) else (str(o).lower(), o) for o in options]
    if value not in [v for _, v in pairs]:
        pairs.append((str(value), value))
    style = {"description_width": "130px"}
    return ipywidgets.Dropdown(
        options=pairs, value=value, description=name, style=style, layout=WIDE
    )


def _beside(placements: Sequence[Placement], labels: Sequence[str], note: str = "") -> Twin:
    """Placements side by side: where results lie, and what each costs."""
    rows = [
        (label, len(p.copies), f"{sum(c.nbytes for c in p.copies):,}",
         f"{p.cost.transitions:,.0f}", f"{p.cost.operations:,.0f}", f"{p.cost.total:,.0f}")
        for label, p in zip(labels, placements, strict=True)
    ]  # fmt: skip
    unit = placements[0].cost.unit
    heads = ("", "transitions", "bytes copied", f"their cost ({unit})", "of operations", "in all")
    lines = [f"{label}: {p!r}" for label, p in zip(labels, placements, strict=True)]
    picture = draw.png(draw.results(*placements, labels=labels))
    table = _table(heads, rows) + (f"<p>{escape(note)}</p>" if note else "")
    return Twin(picture, table, "\n".join([*lines, note]).rstrip())


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """HTML, words flush left and numbers flush right."""
    head = "".join(f"<th style='text-align:left'>{escape(h)}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    number = str(value)[:1].isdigit()
    side = "right" if number else "left"
    return f"<td style='text-align:{side}'>{escape(str(value))}</td>"
