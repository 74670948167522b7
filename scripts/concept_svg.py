"""SVG for the pictures of docs/concepts: shapes, colors and axes of event time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.sax.saxutils import escape

WIDTH = 720

# An <img> follows the system's color scheme, the page its own switch: both palettes are legible on white and slate.
STYLE = """
svg { --ink: #68727d; --grid: #a9b3bd; --blue: #2f7ed8; --red: #d64541; --amber: #d07c1f }
@media (prefers-color-scheme: dark) {
  svg { --ink: #8d98a4; --grid: #6a7480; --blue: #4f95e6; --red: #e5605c; --amber: #dd8f35 }
}
text { font: 13px Helvetica, Arial, sans-serif; fill: var(--ink) }
.small { font-size: 12px } .strong { font-weight: bold } .blue { fill: var(--blue) } .red { fill: var(--red) }
.amber { fill: var(--amber) } .faint { opacity: .8 }
.grid { stroke: var(--grid); stroke-width: 1; opacity: .5 } .axis { stroke: var(--grid); stroke-width: 1.5 }
.box { fill: var(--blue); fill-opacity: .16; stroke: var(--blue); stroke-width: 1.2 }
.gap { fill: var(--blue); fill-opacity: .05; stroke: var(--blue); stroke-width: 1; stroke-dasharray: 4 3 }
.lost { fill: var(--red); fill-opacity: .12; stroke: var(--red); stroke-width: 1.2; stroke-dasharray: 4 3 }
.cell { fill: var(--grid); fill-opacity: .1; stroke: var(--grid); stroke-width: 1; stroke-opacity: .6 }
.behind { fill: var(--amber); fill-opacity: .1 } .dot { fill: var(--blue) }
.cross { stroke: var(--red); stroke-width: 2.4; fill: none } .stem { stroke: var(--blue); stroke-width: 1; opacity: .6 }
.mark { stroke: var(--amber); stroke-width: 2.2; fill: none } .seen { stroke: var(--blue); stroke-dasharray: 2 4; fill: none }
""".strip()


class Picture:
    """SVG elements, 720 pixels wide, on a transparent ground."""

    def __init__(self, title: str, description: str) -> None:
        self.title, self.description = title, description
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{style}">{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>')

    def broken_line(self, x: float, top: float, bottom: float, gaps: Sequence[tuple[float, float]], style: str) -> None:
        """Draw a vertical line that leaves out the given ranges, so that labels there stay readable."""
        for start, end in sorted(gaps):
            self.line(x, top, x, start, style)
            top = end
        self.line(x, top, x, bottom, style)

    def path(self, points: Iterable[tuple[float, float]], style: str) -> None:
        self.parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{style}"/>')

    def rect(self, x1: float, y1: float, x2: float, y2: float, style: str, radius: float = 3) -> None:
        size = f'width="{x2 - x1:.1f}" height="{y2 - y1:.1f}" rx="{radius}"'
        self.parts.append(f'<rect x="{x1:.1f}" y="{y1:.1f}" {size} class="{style}"/>')

    def dot(self, x: float, y: float, late: bool = False) -> None:
        """Draw a record: a disk, or a cross if it was dropped as late."""
        if late:
            self.parts.append(f'<path d="M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10" class="cross"/>')
        else:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" class="dot"/>')

    def svg(self, height: float) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}"'
        names = f"<title>{escape(self.title)}</title>\n<desc>{escape(self.description)}</desc>"
        return "\n".join([f'{head} role="img">', names, f"<style>\n{STYLE}\n</style>", *self.parts, "</svg>", ""])


class Axis:
    """Event time along a horizontal or vertical line of pixels."""

    def __init__(self, start: str, end: str, first: float, last: float) -> None:
        self.start, self.first = minute(start), first
        self.scale = (last - first) / (minute(end) - self.start)

    def __call__(self, moment: str | float) -> float:
        at = minute(moment) if isinstance(moment, str) else moment
        return self.first + (at - self.start) * self.scale


def minute(moment: str) -> float:
    """Return the minute of the day of an ISO time, of a trade's time (20-04-2020-10-10) or of a time of day."""
    if len(moment) == 5:
        return int(moment[:2]) * 60 + int(moment[3:])
    if moment[2] == "-":
        return int(moment[11:13]) * 60 + int(moment[14:16])
    parsed = datetime.fromisoformat(moment).astimezone(UTC)
    return parsed.hour * 60 + parsed.minute + parsed.second / 60


def clock(moment: str | float) -> str:
    at = minute(moment) if isinstance(moment, str) else moment
    return f"{int(at) // 60:02d}:{int(at) % 60:02d}"
