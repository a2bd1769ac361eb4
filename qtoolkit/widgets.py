"""Widgets for notebooks: a slider over the steps of a placement, switches, an edited preference.

Each shows its static twin first, a picture and a text that stay when a notebook was run without
anyone to move the slider (papermill) or is read as HTML.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import ipywidgets

from qtoolkit import draw
from qtoolkit.errors import UnknownName
from qtoolkit.graph import Graph, Node
from qtoolkit.interop.executorch.recorded import Delegate
from qtoolkit.layout import Layout, Reps, RepSet, TensorRepr
from qtoolkit.passes.place import Table
from qtoolkit.passes.place.demands import Extents
from qtoolkit.passes.rules import CHOICES, PlaceRules
from qtoolkit.placement import Placement, place, table_of


@dataclass(frozen=True, eq=False)
class Live:
    """A widget with its static twin: a picture (PNG) and a text of the state it starts in."""

    widget: ipywidgets.Widget
    picture: bytes
    text: str

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The twin alone; `_ipython_display_` shows the widget under it."""
        picture = b64encode(self.picture).decode()
        return {"image/png": picture, "text/plain": self.text}

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        display(self.widget)  # type: ignore[no-untyped-call]


def stepper(placement: Placement, start: int | None = None) -> Live:
    """A slider over the steps of a placement: the sets as they narrow, and the cause of each step.

    start: the step shown at first, the last without. Raises UnknownName for one that is not there.
    """
    steps = placement.trace.steps
    first = len(steps) if start is None else start
    image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width="800px"))
    slider = ipywidgets.IntSlider(
        first, 0, len(steps), description="step", continuous_update=False,
        layout=ipywidgets.Layout(width="800px"),
    )  # fmt: skip

    def show(change: Any = None) -> None:
        image.value = png(lambda: draw.repsets(placement, slider.value))

    slider.observe(show, "value")
    picture = png(lambda: draw.repsets(placement, first))
    image.value = picture
    told = f"step {first} of {len(steps)}" + (f": {steps[first - 1]}" if first else "")
    return Live(ipywidgets.VBox([slider, image]), picture, told)


def switches(
    graph: Graph | Delegate, table: str, rules: PlaceRules, changed: Mapping[str, object]
) -> Live:
    """A menu for each rule; the placement by `rules` and, under it, by the menus' choice.

    changed: the choice that it starts with, e.g. {"constrain_outputs": "never"}.
    """
    before = place(graph, table, rules)
    menus = {
        name: ipywidgets.Dropdown(
            options=[(str(o), o) for o in options], value=changed.get(name, getattr(rules, name)),
            description=name, style={"description_width": "140px"},
        )
        for name, options in CHOICES.items()
    }  # fmt: skip
    image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width="800px"))
    words = ipywidgets.HTML()

    def chosen() -> Placement:
        told = {name: menu.value for name, menu in menus.items()}
        return place(graph, table, replace(rules, **told))

    def show(change: Any = None) -> None:
        try:
            after = chosen()
        except UnknownName as why:
            words.value = f"<p>{escape(str(why))}</p>"
            return
        image.value = _beside(before, after, ("before", "with the menus' choice"))
        words.value = f"<p>before: {escape(repr(before))}</p><p>after: {escape(repr(after))}</p>"

    for menu in menus.values():
        menu.observe(show, "value")
    show()
    text = f"{dict(changed) or 'no rule changed'}\nbefore: {before!r}\nafter: {chosen()!r}"
    return Live(ipywidgets.VBox([*menus.values(), words, image]), image.value, text)


def preference(
    graph: Graph | Delegate, node: str, table: str = "qtoolkit", rules: PlaceRules | None = None
) -> Live:
    """A menu of what a node's result may be: the choice comes first, and the graph is placed again.

    What is tied to the result follows. Raises UnknownName for a node without a choice.
    """
    before = place(graph, table, rules)
    if node not in before.graph:
        raise UnknownName(f"no node %{node}; the table of the placement lists them")
    stated = before.trace.about(node)[0].edit.reps[0][1]
    options = stated.outputs[0].reprs
    if len(options) < 2:
        raise UnknownName(f"%{node} has no choice: its result is {stated.outputs[0]}")
    has = before.of(node)
    other = next((r for r in options if has is None or r != has[0]), options[0])
    menu = ipywidgets.Dropdown(options=[(str(r), r) for r in options], value=other,
                               description="prefer")  # fmt: skip
    image = ipywidgets.Image(format="png", layout=ipywidgets.Layout(width="800px"))
    words = ipywidgets.HTML()
    base, limits = table_of(table), before.limits

    def placed(r: TensorRepr) -> Placement:
        return place(before.trace.before, Preferring(base, node, r), before.rules, limits=limits)

    def show(change: Any = None) -> None:
        after = placed(menu.value)
        image.value = _beside(before, after, ("as stated", f"%{node} in {menu.value}"))
        words.value = f"<p>{escape(repr(after))}</p>"

    menu.observe(show, "value")
    show()
    text = f"as stated: {before!r}\n%{node} in {other}: {placed(other)!r}"
    return Live(ipywidgets.VBox([menu, words, image]), image.value, text)


@dataclass(frozen=True)
class Preferring:
    """A table in which one node's result, and what is tied to it, must be one representation."""

    table: Table
    node: str
    wanted: TensorRepr

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
        one = RepSet([self.wanted])
        tied = {slot for tie in stated.ties if -1 in tie for slot in tie} | {-1}
        ins = tuple(one if i in tied and r is not None else r for i, r in enumerate(stated.inputs))
        return Reps(ins, (one, *stated.outputs[1:]), stated.ties)

    def why(self, node: Node) -> tuple[object, ...]:
        told = self.table.why(node)
        return told if node.name != self.node else ("{0}: {1}, as was asked for", self.wanted)

    def extents(self, type: Any, layout: Layout) -> Extents | None:
        return self.table.extents(type, layout)


def png(make: Callable[[], Any]) -> bytes:
    """The picture that `make` draws, its figure closed again."""
    return draw.png(make())


def _beside(before: Placement, after: Placement, labels: tuple[str, str]) -> bytes:
    return png(lambda: draw.costs(before, after, labels=labels))
