"""A graph laid out by module: a lane per block, a box per op, wires in the gutters between."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from qtoolkit.draw.choice import WEIGHTS
from qtoolkit.draw.modules import Block, blocks
from qtoolkit.draw.palette import ROLE_WORDS
from qtoolkit.draw.roles import of_constant, op_text, role_counts, roles
from qtoolkit.graph import Graph, Node

# Inches, y downwards.
WIDTH = 8.0
LABEL = 1.4
CHARACTER = 0.064
LABEL_CHARS, TIP_CHARS = 18, 400
BOX, NARROW, HEIGHT = 1.14, 0.5, 0.27
GAP = 0.16
GUTTER, TRACK = 0.16, 0.07
LEGEND = 0.26

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its place (left, top, width), its words, its role, whether it has weights."""

    name: str
    x: float
    y: float
    width: float
    text: str
    role: str
    weighted: bool
    tip: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Wire:
    """A value's way from one box to another; `skip` if it passes other boxes by."""

    source: str
    target: str
    points: tuple[Point, ...]
    skip: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """The name of a block, and the shape it ends with, at the height of its first row."""

    label: str
    detail: str
    y: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One colour of the legend."""

    role: str
    text: str
    x: float


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything a graph picture shows, in inches; Axes and SVG draw the same one.

    warn: the graph is quantized, so that a float op in it is one that was left float.
    """

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    lanes: tuple[Lane, ...]
    legend: tuple[Entry, ...]
    alt: str
    warn: bool


@dataclass(slots=True)
class _Row:
    nodes: list[Node] = field(default_factory=list)
    tracks: list[str] = field(default_factory=list)
    top: float = 0.0
    block: Block | None = None

    def track(self, source: str) -> float:
        """The height at which `source`'s wire runs in the gutter above this row."""
        at = self.tracks.index(source)
        return self.top - GUTTER / 2 - TRACK * at


def lay_out(graph: Graph) -> Picture:
    """Lay out a graph of any backend or stage; constants and their q/dq nodes are left out."""
    nodes = [n for n in graph.nodes if not of_constant(n)]
    words = {n.name: op_text(graph, n) for n in nodes}
    told = roles(graph)
    rows = _rows(nodes, words)
    row_of = {n.name: i for i, row in enumerate(rows) for n in row.nodes}
    edges = list(_edges(nodes, row_of))
    order = [n.name for n in nodes]
    next_of = dict(pairwise(order))
    beside = {(a, b) for a, b in edges if next_of.get(a) == b and row_of[a] == row_of[b]}
    _allot_tracks(rows, row_of, [e for e in edges if e not in beside])
    bottom = LEGEND
    for row in rows:
        row.top = bottom + GUTTER + TRACK * max(0, len(row.tracks) - 1)
        bottom = row.top + HEIGHT
    boxes = {b.name: b for row in rows for b in _boxes(row, words, told)}
    wires = tuple(
        _wire(boxes[a], boxes[b], rows, row_of, (a, b) in beside, next_of.get(a) != b)
        for a, b in edges
    )
    lanes = tuple(
        Lane(_cut(row.block.label), _shape(_last_of(row.block, nodes)), row.top)
        for row in rows
        if row.block is not None
    )
    counts = role_counts(graph)
    edge = max([WIDTH, *(x + 0.06 for w in wires for x, _ in w.points)])
    return Picture(
        edge,
        bottom + 0.06,
        tuple(boxes.values()),
        wires,
        lanes,
        _legend(counts),
        _alt(counts, lanes),
        counts["int8"] + counts["border"] > 0,
    )


def _rows(nodes: Sequence[Node], words: Mapping[str, str]) -> list[_Row]:
    rows: list[_Row] = []
    for block in blocks([n.where.module for n in nodes]):
        rows.append(_Row(block=block))
        x = LABEL
        for node in nodes[block.first : block.last + 1]:
            width = _width(node, words[node.name])
            if rows[-1].nodes and x + width > WIDTH:
                rows.append(_Row())
                x = LABEL
            rows[-1].nodes.append(node)
            x += width + GAP
    return rows


def _edges(nodes: Sequence[Node], shown: Mapping[str, int]) -> list[tuple[str, str]]:
    found: dict[tuple[str, str], None] = {}
    for node in nodes:
        for ref in node.refs():
            if ref.node in shown:
                found[ref.node, node.name] = None
    return list(found)


def _allot_tracks(
    rows: Sequence[_Row], row_of: Mapping[str, int], edges: Sequence[tuple[str, str]]
) -> None:
    """Give each source one height in every gutter its wires run through."""
    for a, b in edges:
        gutters = {row_of[b]} if row_of[a] == row_of[b] else {row_of[a] + 1, row_of[b]}
        for i in gutters:
            if a not in rows[i].tracks:
                rows[i].tracks.append(a)


def _boxes(row: _Row, words: Mapping[str, str], told: Mapping[str, str]) -> list[Box]:
    found: list[Box] = []
    x = LABEL
    for node in row.nodes:
        name, text = node.name, words[node.name]
        width, weighted = _width(node, text), node.op in WEIGHTS
        found.append(Box(name, x, row.top, width, text, told[name], weighted, _tip(node)))
        x += width + GAP
    return found


def _tip(node: Node) -> str:
    told, where = str(node), str(node.where)
    short = told if len(told) < TIP_CHARS else told[:TIP_CHARS] + "…"
    return f"{short}\n{where}" if where else short


def _wire(
    a: Box, b: Box, rows: Sequence[_Row], row_of: Mapping[str, int], beside: bool, skip: bool
) -> Wire:
    ra, rb = row_of[a.name], row_of[b.name]
    # A skip arrives left of the middle, so that it does not cover the wire from the row above.
    at = b.middle
    if beside:
        y = a.y + HEIGHT / 2
        points: list[Point] = [(a.x + a.width, y), (b.x, y)]
    elif ra == rb:
        y = rows[ra].track(a.name)
        points = [(a.middle, a.y), (a.middle, y), (at, y), (at, b.y)]
    elif rb == ra + 1:
        y = rows[rb].track(a.name)
        points = [(a.middle, a.y + HEIGHT), (a.middle, y), (at, y), (at, b.y)]
    else:
        first, last = rows[ra + 1].track(a.name), rows[rb].track(a.name)
        side = WIDTH + 0.08 + TRACK * (ra % 6)
        points = [(a.middle, a.y + HEIGHT), (a.middle, first), (side, first), (side, last),
                  (at, last), (at, b.y)]  # fmt: skip
    return Wire(a.name, b.name, tuple(points), skip)


def _width(node: Node, text: str) -> float:
    """Ops with weights stand in columns; the others take what their words need."""
    return BOX if node.op in WEIGHTS else max(NARROW, 0.1 + CHARACTER * len(text))


def _cut(label: str) -> str:
    return label if len(label) <= LABEL_CHARS else label[: LABEL_CHARS - 1] + "…"


def _last_of(block: Block, nodes: Sequence[Node]) -> Node:
    return nodes[block.last]


def _shape(node: Node) -> str:
    sizes = node.type.sizes[1:] if node.type.rank > 1 else node.type.sizes
    return "×".join(map(str, sizes))


def _legend(counts: Mapping[str, int]) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    x = 0.02
    for role, count in counts.items():
        if not count and role not in ("int8", "float"):
            continue
        text = f"{ROLE_WORDS[role]}  {count}"
        entries.append(Entry(role, text, x))
        x += 0.42 + 0.068 * len(text)
    return tuple(entries)


def _alt(counts: Mapping[str, int], lanes: Sequence[Lane]) -> str:
    told = ", ".join(f"{ROLE_WORDS[role]} {count}" for role, count in counts.items())
    return f"A network of {len(lanes)} modules, one lane each: {told}."
