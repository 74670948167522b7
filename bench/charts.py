"""SVG charts without a plotting library: small enough to commit, readable on light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 760
BAR = 22
TOP = 44
HEADWATER_COLOR, OTHER_COLOR, WRONG_COLOR, TEXT_COLOR, GRID_COLOR = (
    "#2f7ed8",
    "#9aa5b1",
    "#d9534f",
    "#57606a",
    "#d0d7de",
)
COLORS = ("#2f7ed8", "#e8833a", "#5aa469", "#8e6bbf", "#9aa5b1")
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'


@dataclass(frozen=True)
class Bar:
    """``whisker`` is a second value, such as p99 beside p50, drawn as a thin line."""

    label: str
    value: float
    text: str
    color: str = OTHER_COLOR
    whisker: float | None = None


def draw_bars(title: str, rows: Sequence[Bar], note: str = "") -> str:
    """Draw horizontal bars in the given order."""
    left = 24 + 6.2 * max((len(row.label) for row in rows), default=0)
    most = max((max(row.value, row.whisker or 0) for row in rows), default=1.0) or 1.0
    scale = (WIDTH - left - 120) / most
    parts = []
    for number, row in enumerate(rows):
        y = TOP + number * BAR
        end = left + max(row.value, row.whisker or 0) * scale
        parts.append(_text(left - 8, y + 12, row.label, anchor="end"))
        parts.append(
            f'<rect x="{left:.0f}" y="{y}" width="{max(1.0, row.value * scale):.1f}" height="{BAR - 7}" fill="{row.color}"/>'
        )
        if row.whisker is not None:
            x = left + row.whisker * scale
            parts.append(_line(left + row.value * scale, y + 7.5, x, y + 7.5, row.color, 2))
            parts.append(_line(x, y + 2, x, y + 13, row.color, 2))
        parts.append(_text(end + 6, y + 12, row.text))
    return _svg(title, note, TOP + len(rows) * BAR + 14, parts)


def draw_lines(title: str, series: dict[str, Sequence[tuple[float, float]]], x_name: str, y_name: str) -> str:
    """Draw lines on two logarithmic axes, where linear growth has a slope of 1."""
    points = [point for line in series.values() for point in line if point[0] > 0 and point[1] > 0]
    if not points:
        return _svg(title, "no measurements", TOP + 20, [])
    left, right, bottom, top = 70, WIDTH - 40, 330, TOP + 10
    xs, ys = _decades([x for x, _ in points]), _decades([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - xs[0]) / (xs[1] - xs[0])
        up = (math.log10(y) - ys[0]) / (ys[1] - ys[0])
        return left + across * (right - left), bottom - up * (bottom - top)

    parts = []
    for power in range(xs[0], xs[1] + 1):
        x, _ = place(10.0**power, 10.0 ** ys[0])
        parts += [
            _line(x, top, x, bottom, GRID_COLOR),
            _text(x, bottom + 16, _format_tick(10.0**power), anchor="middle"),
        ]
    for power in range(ys[0], ys[1] + 1):
        _, y = place(10.0 ** xs[0], 10.0**power)
        parts += [_line(left, y, right, y, GRID_COLOR), _text(left - 6, y + 4, _format_tick(10.0**power), anchor="end")]
    for number, (name, line) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        spots = [place(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in spots]
        key = bottom + 58 + number * 18
        parts += [_line(left, key - 4, left + 16, key - 4, color, 3), _text(left + 24, key, name)]
    parts.append(_text((left + right) / 2, bottom + 36, x_name, anchor="middle"))
    parts.append(_text(left, top - 8, y_name))
    return _svg(title, "", bottom + 58 + 18 * len(series), parts)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _format_tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{TEXT_COLOR}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, color: str, width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'


def _svg(title: str, note: str, height: float, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {FONT} role="img">'
    labels = [f"<title>{escape(title)}</title>", _text(12, 20, title, size=14), _text(12, 35, note, size=11)]
    return "\n".join([head, *labels, *parts, "</svg>"]) + "\n"
