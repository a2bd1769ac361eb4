"""The graph by module as SVG text: for a page, with a tip on every box."""

from html import escape

from qtoolkit.draw.lanes import HEIGHT, Box, Picture, Point, Wire, lay_out
from qtoolkit.draw.network import RADIUS, arrow, corners, fill
from qtoolkit.draw.palette import INK, MUTED, WIRE
from qtoolkit.graph import Graph

UNIT = 100
FONT = "system-ui, 'DejaVu Sans', sans-serif"


def graph_svg(graph: Graph) -> str:
    """The picture that `graph` draws, as one <svg> element that needs nothing else.

    Every text is escaped; an <desc> says in words what is seen; the tip of a box is its node.
    """
    picture = lay_out(graph)
    size = f"{UNIT * picture.width:.0f} {UNIT * picture.height:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
            f'aria-label="{escape(picture.alt)}" font-family="{FONT}">',
            f"<desc>{escape(picture.alt)}</desc>",
            *_legend(picture),
            *(_wire(w) for w in sorted(picture.wires, key=lambda w: w.skip)),
            *(_box(b, picture.warn) for b in picture.boxes),
            *_lanes(picture),
            "</svg>",
        ]
    )


def _legend(picture: Picture) -> list[str]:
    found: list[str] = []
    for e in picture.legend:
        face, edge, _ = fill(e.role, picture.warn)
        found.append(
            f'<rect x="{_n(e.x)}" y="{_n(0.03)}" width="13" height="13" fill="{face}" '
            f'stroke="{edge}"/>' + _text(e.x + 0.2, 0.14, e.text, 11, INK)
        )
    return found


def _lanes(picture: Picture) -> list[str]:
    return [
        _text(0, lane.y + 0.12, lane.label, 11, INK, 'font-weight="bold"')
        + _text(0, lane.y + 0.245, lane.detail, 9.5, MUTED)
        for lane in picture.lanes
    ]


def _box(box: Box, warn: bool) -> str:
    face, edge, text = fill(box.role, warn, box.weighted)
    return (
        f"<g><title>{escape(box.tip)}</title>"
        f'<rect x="{_n(box.x)}" y="{_n(box.y)}" width="{_n(box.width)}" height="{_n(HEIGHT)}" '
        f'rx="{_n(RADIUS)}" fill="{face}" stroke="{edge}"/>'
        + _text(box.middle, box.y + 0.17, box.text, 10.4, text, 'text-anchor="middle"')
        + "</g>"
    )


def _wire(wire: Wire) -> str:
    color = INK if wire.skip else WIRE
    bends = "".join(
        f"L{_p(begin)}Q{_p(corner)} {_p(end)}" for begin, corner, end in corners(wire.points)
    )
    line = f"M{_p(wire.points[0])}{bends}L{_p(wire.points[-1])}"
    head = " ".join(_p(p) for p in arrow(wire.points))
    return (
        f'<path d="{line}" fill="none" stroke="{color}" stroke-width="1.3"/>'
        f'<polygon points="{head}" fill="{color}"/>'
    )


def _text(x: float, y: float, text: str, size: float, color: str, more: str = "") -> str:
    attributes = f'x="{_n(x)}" y="{_n(y)}" font-size="{size}" fill="{color}" {more}'.rstrip()
    return f"<text {attributes}>{escape(text)}</text>"


def _p(point: Point) -> str:
    return f"{_n(point[0])},{_n(point[1])}"


def _n(inches: float) -> str:
    return f"{UNIT * inches:.1f}".removesuffix(".0")
