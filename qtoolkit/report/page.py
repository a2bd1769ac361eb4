"""report.html: one file that needs nothing else, every text in it escaped."""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qtoolkit.exploration import Exploration, ImageResult, NodeSummary
from qtoolkit.models import RANDOM
from qtoolkit.report.pictures import Picture
from qtoolkit.report.record import granularities
from qtoolkit.report.summary import class_name, decibels, plural, size, verdicts


@dataclass(frozen=True, slots=True)
class ClassCell:
    """A class that a run found; printed with its name."""

    index: int
    told: str

    def __str__(self) -> str:
        return self.told


def page(e: Exploration, record: Mapping[str, Any], pictures: Mapping[str, Picture]) -> str:
    """The report as HTML, with its figures inline."""
    import jinja2
    from markupsafe import Markup

    from qtoolkit import draw

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("qtoolkit.report", "template"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    assert environment.loader is not None
    style, script = (
        environment.loader.get_source(environment, name)[0] for name in ("report.css", "report.js")
    )
    shown = columns(e)
    beside = dict(zip(_meanings(e.other_nodes), e.other_nodes, strict=True))
    return environment.get_template("report.html").render(
        e=e,
        record=record,
        verdicts=verdicts(e),
        pictures={name: pictures.get(name) for name in PICTURES},
        graph=Markup(draw.graph_svg(e.compiled)),
        shown=shown,
        granularities=granularities(e),
        images=[_image(e, image, shown) for image in e.images],
        nodes=[
            _value(e, n, beside.get(meaning))
            for meaning, n in zip(_meanings(e.nodes), e.nodes, strict=True)
        ],
        missing=[(b, m) for b, found in record["compared"].items() for m in found["missing"]],
        random=RANDOM in e.model.data_source,
        transitions=_transitions(e),
        style=Markup(style),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


PICTURES = (
    "input", "sqnr", "scales", "error", "error_map", "error_maps", "placement", "time",
)  # fmt: skip


def columns(e: Exploration) -> tuple[str, ...]:
    """The runs worth a column beside float: one backend speaks for all that found the same."""
    distinct = {tuple(image.top1[backend] for image in e.images): backend for backend in e.backends}
    backends = tuple(distinct.values())
    return (*(backends if len(backends) > 1 else [e.weights]), *granularities(e)[1:])


def _image(e: Exploration, image: ImageResult, shown: tuple[str, ...]) -> dict[str, Any]:
    def cell(key: str) -> ClassCell:
        index = image.top1[e.backends[-1] if key == e.weights else key]
        return ClassCell(index, class_name(e, index))

    return {
        "name": image.name,
        "float": cell("float"),
        "classes": [cell(key) for key in shown],
        "top3": image.float_top3,
        "decibels": [decibels(image.output_sqnr_db[key]) for key in granularities(e)],
    }


def _meanings(nodes: Sequence[NodeSummary]) -> list[tuple[Any, ...]]:
    """What each value computes, in words that both granularities share.

    Not its name: torch numbers q/dq nodes, and the two granularities have not equally many.
    """
    seen: Counter[tuple[Any, ...]] = Counter()
    found: list[tuple[Any, ...]] = []
    for n in nodes:
        told = n.op, n.origin or n.name
        found.append((*told, seen[told]))
        seen[told] += 1
    return found


def _value(e: Exploration, n: NodeSummary, other: NodeSummary | None) -> dict[str, Any]:
    where = e.compiled[n.name.partition("#")[0]].where
    db, beside = n.sqnr_db, other.sqnr_db if other else None
    gain = None if db is None or beside is None else db - beside
    return {
        "name": n.name,
        "op": n.op,
        "where": " · ".join(part for part in (where.module, where.source) if part),
        "origin": "" if n.origin in ((), (n.name,)) else " + ".join(n.origin),
        "sqnr": n.sqnr if db is None else decibels(db),
        "sort": "" if db is None else db,
        "gain": "" if gain is None else f"{gain:+.1f}",
        "gain_sort": "" if gain is None else gain,
        "max_abs": n.max_abs,
        "memory": f"{n.storage}/{n.layout}" if n.layout else "",
    }


def _transitions(e: Exploration) -> str:
    count, total = e.transitions
    if not count:
        return "None: no value is copied from one memory layout to another."
    verb = "moves" if count == 1 else "move"
    return f"{plural(count, 'transition')} {verb} {size(total)} in one run."
