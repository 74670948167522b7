"""Draw the pictures of docs/concepts from recorded batches: ``python scripts/draw_concepts.py``.

The batches in docs/images/concepts.json come from gallery jobs; scripts/concept_batches.py records them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from concept_svg import Axis, Picture, clock, minute

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MINUS = "\N{MINUS SIGN}"
Batches = list[dict[str, Any]]


def record(line: str) -> dict[str, Any]:
    """Return the fields of an input line, which may be JSON with single quotes."""
    found: dict[str, Any] = json.loads(line.replace("'", '"'))
    return found


def draw_windows(runs: dict[str, Batches]) -> str:
    """Draw the same trades in tumbling and in sliding windows."""
    picture = Picture(
        "Tumbling and sliding windows",
        "Seven trades between 10:10 and 10:27, the 5-minute tumbling windows and the 10-minute sliding windows that"
        " they fall into, and the profit of each window as emitted by profit-per-window and profit-sliding.",
    )
    trades = sorted((minute(trade["time"]), trade) for trade in map(record, runs["tumbling"][0]["records"]))
    axis = Axis("10:05", "10:35", 116, 700)
    picture.text(700, 298, "event time", "small", "end")
    picture.text(8, 67, "trades", "strong")
    free = [0.0, 0.0]
    for at, trade in trades:
        label = f"{trade['id']} {'+' if signed(trade) > 0 else MINUS}{trade['amount']}"
        crowded = any(at < other <= at + 1 for other, _ in trades)  # the neighbor's stem would cross a centered label
        extent = len(label) * (6.8 if crowded else 3.4)
        row = 0 if axis(at) - extent > free[0] else 1
        free[row] = axis(at) + (12 if crowded else extent + 6)
        picture.line(axis(at), 42 - row * 18, axis(at), 62, "stem")
        picture.text(axis(at) + (8 if crowded else 0), 38 - row * 18, label, "small", "end" if crowded else "middle")
        picture.dot(axis(at), 63)
    boxes: list[tuple[float, float, float]] = []
    for name, about, top in (("tumbling", "5 minutes", 92), ("sliding", "10 minutes,", 158)):
        picture.text(8, top + 14, name, "strong")
        picture.text(8, top + 31, about, "small")
        lanes: list[float] = []
        for row in sorted(runs[name][0]["emitted"], key=lambda row: row["window"]["start"]):
            start, end = minute(row["window"]["start"]), minute(row["window"]["end"])
            lane = next((number for number, free_from in enumerate(lanes) if free_from <= start), len(lanes))
            lanes[lane : lane + 1] = [end]
            terms = [signed(trade) for at, trade in trades if start <= at < end]
            assert sum(terms) == row["profit"], "the picture's sum is not what the job emitted"
            y = top + lane * 50
            picture.rect(axis(start) + 1.5, y, axis(end) - 1.5, y + 38, "box")
            boxes.append((start, end, y))
            middle = (axis(start) + axis(end)) / 2
            if len(terms) > 1:
                picture.text(middle, y + 16, added(terms), "small", "middle")
            profit = f"{row['profit']}".replace("-", MINUS)
            picture.text(middle, y + (31 if len(terms) > 1 else 24), profit, "strong blue", "middle")
    picture.text(8, 206, "every 5 minutes", "small")
    for at in range(605, 636, 5):
        gaps = [(y - 2, y + 40) for start, end, y in boxes if start < at < end]
        picture.broken_line(axis(at), 74, 262, gaps, "grid")
        picture.text(axis(at), 280, clock(at), "small", "middle")
    return picture.svg(304)


def added(terms: Sequence[int]) -> str:
    """Return the terms of a sum: ``10 + 18``."""
    first, *others = terms
    return f"{first}".replace("-", MINUS) + "".join(f" {'+' if term > 0 else MINUS} {abs(term)}" for term in others)


def signed(trade: dict[str, Any]) -> int:
    amount: int = trade["amount"]
    return amount if trade["type"] == "buy" else -amount


def draw_sessions(runs: dict[str, Batches]) -> str:
    """Draw events per user, the sessions that they form, and the watermarks that close them."""
    picture = Picture(
        "Session windows",
        "Events of the users a, b and c, the sessions that user-sessions emitted, and the watermark of each batch. A"
        " session is emitted when the watermark reaches its last event plus 30 minutes.",
    )
    axis = Axis("09:55", "13:05", 70, 704)
    gap, top, lane = 30, 62, 66
    batches = runs["sessions"]
    events = [record(line) for batch in batches for line in batch["records"]]
    users = sorted({event["user"] for event in events})
    bottom = top + lane * len(users)
    labels = [(top + lane * number + 29, top + lane * number + 48) for number in range(len(users))]
    for at in range(600, 781, 30):
        picture.broken_line(axis(at), top - 8, bottom, [(start - 29, end) for start, end in labels], "grid")
        picture.text(axis(at), bottom + 18, clock(at), "small", "middle")
    picture.text(704, bottom + 36, "event time", "small", "end")
    picture.text(8, 20, "watermark", "strong amber")
    marks = {batch["watermark"]: batch["batch"] for batch in reversed(batches) if batch["watermark"]}
    for watermark, batch_id in sorted(marks.items()):
        picture.broken_line(axis(watermark), 40, bottom, labels, "mark")
        picture.text(axis(watermark), 20, f"batch {batch_id}", "small amber", "middle")
        picture.text(axis(watermark), 35, clock(watermark), "small amber", "middle")
    sessions = [
        (row["user"], minute(row["start"]), minute(row["end"]), row["events"], batch["batch"])
        for batch in batches
        for row in batch["emitted"]
    ]
    for row in batches[-1]["state"]:
        start, end = (minute(row["value"]["session_window"][side]) for side in ("start", "end"))
        sessions.append((row["key"]["user"], start, end - gap, row["value"]["count"], None))
    for user, start, end, count, batch_id in sessions:
        y = top + lane * users.index(user)
        picture.rect(axis(start) - 13, y, axis(end + gap), y + 26, "gap", 13)
        picture.rect(axis(start) - 13, y, axis(end) + 13, y + 26, "box", 13)
        length = f"{count} event" + ("s" if count > 1 else "")
        outcome = "open" if batch_id is None else f"emitted by batch {batch_id}"
        picture.text(
            axis(start) - 13, y + 43, f"{length}, {outcome}", "small blue" if batch_id is not None else "small"
        )
        if count > 1:
            picture.text(axis(end + gap) - 10, y + 17, f"{gap} minutes", "small", "end")
    for event in events:
        picture.dot(axis(event["event_time"]), top + lane * users.index(event["user"]) + 13)
    for number, user in enumerate(users):
        picture.text(8, top + lane * number + 18, f"user {user}", "strong")
    return picture.svg(bottom + 42)


def draw_watermark(runs: dict[str, Batches]) -> str:
    """Draw event time against batches: the latest event, the watermark behind it, records kept and dropped."""
    picture = Picture(
        "The watermark and late records",
        "Nine batches of browser-stats-stateful. The watermark follows the latest event time by 20 minutes. The visit of"
        " 09:40 is kept because its window ends after the watermark; those of 09:30 and, later, 10:00 are dropped.",
    )
    batches = runs["visits"]
    left, column = 62.0, 72.0
    axis = Axis("09:25", "10:37", 382, 12)
    for at in range(570, 640, 10):
        picture.line(left, axis(at), left + column * len(batches), axis(at), "grid")
        picture.text(left - 8, axis(at) + 4, clock(at), "small", "end")
    picture.rect(left, 428, left + 18, 450, "box")
    picture.dot(left + 9, 439)
    picture.text(left + 26, 443, "visit, in its 5-minute window", "small")
    picture.rect(left + 216, 428, left + 234, 450, "lost")
    picture.dot(left + 225, 439, late=True)
    picture.text(left + 242, 443, "late visit, dropped", "small")
    picture.rect(left + 374, 428, left + 392, 450, "behind", 0)
    picture.text(left + 400, 443, "event time behind the watermark", "small")
    latest = 0.0
    marks: list[tuple[float, float]] = []
    seen: list[tuple[float, float]] = []
    for number, batch in enumerate(batches):
        x = left + number * column
        if batch["watermark"]:
            marks += [(x, axis(batch["watermark"])), (x + column, axis(batch["watermark"]))]
            picture.rect(x, axis(batch["watermark"]), x + column, axis("09:25"), "behind", 0)
        latest = max([latest, *(minute(record(line)["eventTime"]) for line in batch["records"])])
        seen += [(x, axis(latest)), (x + column, axis(latest))]
        picture.text(x + column / 2, 402, f"batch {batch['batch']}", "small", "middle")
        if not batch["records"]:
            picture.text(x + column / 2, 417, "no data", "small faint", "middle")
    picture.path(seen, "seen")
    picture.path(marks, "mark")
    for number, batch in enumerate(batches):
        lines = batch["records"]
        for place, line in enumerate(lines):
            time, late = minute(record(line)["eventTime"]), line in batch["late"]
            x = left + column * (number + (place + 1) / (len(lines) + 1))
            start = time // 5 * 5
            picture.rect(x - 9, axis(start + 5), x + 9, axis(start), "lost" if late else "box")
            picture.dot(x, axis(time), late)
    _annotate_watermark(picture, batches, axis, lambda number: left + column * (number + 0.5))
    return picture.svg(460)


def _annotate_watermark(picture: Picture, batches: Batches, axis: Axis, middle: Callable[[int], float]) -> None:
    picture.text(middle(3) - 30, axis("10:03") - 7, "latest event time", "small blue")
    picture.text(middle(1) - 32, axis("09:43") - 7, "watermark, 20 minutes behind", "small amber")
    dropped = [number for number, batch in enumerate(batches) if batch["late"]]
    (kept,) = (
        number
        for number, batch in enumerate(batches)
        if batch["watermark"]
        and any(minute(record(line)["eventTime"]) < minute(batch["watermark"]) for line in batch["records"])
        and number not in dropped
    )
    for number in (kept, *dropped):
        at = minute(record(batches[number]["records"][0])["eventTime"])
        watermark = clock(batches[number]["watermark"])
        end = clock(at // 5 * 5 + 5)
        x, y = middle(number), axis(at)
        if number == kept:
            picture.text(x - 16, y + 17, f"{clock(at)} is kept: its window", "small strong blue", "end")
            picture.text(x - 16, y + 32, f"ends at {end}, after {watermark}", "small", "end")
        elif number == dropped[0]:
            picture.text(x + 16, y - 24, f"{clock(at)} is dropped: its window", "small strong red")
            picture.text(x + 16, y - 9, f"ended at {end}, before {watermark}", "small")
        else:
            above = axis(batches[number]["watermark"])
            picture.text(x + 32, above - 22, f"{clock(at)} is dropped: its window", "small strong red", "end")
            picture.text(x + 32, above - 7, f"ended at {end}, before {watermark}", "small", "end")


def draw_visits(runs: dict[str, Batches]) -> str:
    """Draw each batch of browser-stats-stateful as a row: records, windows in state, watermark, emitted rows."""
    picture = Picture(
        "browser-stats-stateful, batch by batch",
        "For each of nine batches: the visits it read, the windows in its state afterwards, the watermark, and the rows"
        " it emitted.",
    )
    batches = runs["visits"]
    axis = Axis("09:25", "10:40", 66, 470)
    top, row_height = 40, 42
    bottom = top + row_height * len(batches)
    picture.text(8, 24, "batch", "strong")
    picture.text(66, 24, "visits and windows in state, by event time", "strong")
    picture.text(486, 24, "emitted rows", "strong")
    for at in range(570, 640, 10):
        picture.line(axis(at), top, axis(at), bottom, "grid")
        picture.text(axis(at), bottom + 17, clock(at), "small", "middle")
    marks: list[tuple[float, float]] = []
    before: list[Any] = []
    for number, batch in enumerate(batches):
        y = top + row_height * number
        picture.line(8, y, 712, y, "grid")
        picture.text(14, y + 26, str(batch["batch"]), "strong")
        if batch["watermark"]:
            x = axis(batch["watermark"])
            marks += [(x, y), (x, y + row_height)]
            picture.rect(axis("09:25"), y, x, y + row_height, "behind", 0)
        counts: dict[tuple[str, str], int] = {}
        for row in batch["state"]:
            window = (row["key"]["window"]["start"], row["key"]["window"]["end"])
            counts[window] = counts.get(window, 0) + row["value"]["count"]
        for (start, end), visits in counts.items():
            picture.rect(axis(start), y + 19, axis(end), y + 37, "box")
            picture.text(axis(start) + 5, y + 32, str(visits), "small strong")
        for line in batch["records"]:
            picture.dot(axis(record(line)["eventTime"]), y + 10, line in batch["late"])
        evicted = len([row for row in before if row["key"] not in [kept["key"] for kept in batch["state"]]])
        for place, line in enumerate(_summary(batch, evicted)):
            picture.text(486, y + (18 if place == 0 else 34), line, "small")
        before = batch["state"]
    picture.line(8, bottom, 712, bottom, "grid")
    picture.path(marks, "mark")
    last = bottom + 44
    picture.line(66, last - 4, 90, last - 4, "mark")
    picture.text(96, last, "watermark", "small")
    picture.dot(190, last - 4)
    picture.text(202, last, "visit", "small")
    picture.dot(262, last - 4, late=True)
    picture.text(274, last, "late visit, dropped", "small")
    picture.rect(414, last - 14, 440, last + 4, "box")
    picture.text(448, last, "window in state, with its visits", "small")
    return picture.svg(last + 14)


def _summary(batch: dict[str, Any], evicted: int) -> Sequence[str]:
    if batch["emitted"]:
        windows = {row["window"]["start"] for row in batch["emitted"]}
        (start,) = windows
        return [f"window {clock(start)}:", ", ".join(f"{row['browser']} {row['count']}" for row in batch["emitted"])]
    if batch["late"]:
        return [f"none: {clock(record(batch['late'][0])['eventTime'])} is late"]
    return ["none: no data,", f"{evicted} rows evicted"] if evicted else ["none: no data, nothing to evict"]


def draw_modes(runs: dict[str, Batches]) -> str:
    """Draw the rows that each batch of order-status emits in the three output modes."""
    picture = Picture(
        "The three output modes",
        "Four orders in two batches of order-status. Complete mode emits every status each time, update mode only those"
        " that changed, append mode the orders themselves.",
    )
    orders = [[_order(record(line)) for line in batch["records"]] for batch in runs["orders_complete"]]
    rows: list[tuple[str, str, list[list[str]]]] = [("orders", "that the batch reads", orders)]
    for name, about in (
        ("complete", "the entire result"),
        ("update", "the rows that changed"),
        ("append", "final rows: here, the orders"),
    ):
        emitted = [
            sorted(
                _order(row) if "order_id" in row else f"{row['order_status']} {row['count']}"
                for row in batch["emitted"]
            )
            for batch in runs[f"orders_{name}"]
        ]
        rows.append((name, about, emitted))
    left, width, y = 196.0, 252.0, 36.0
    for number in range(2):
        picture.text(left + number * (width + 12) + 12, 22, f"batch {number}", "strong")
    for name, about, cells in rows:
        height = 18 * max(map(len, cells)) + 16
        picture.text(8, y + 22, name, "strong" if name == "orders" else "strong blue")
        picture.text(8, y + 39, about, "small")
        for number, lines in enumerate(cells):
            x = left + number * (width + 12)
            picture.rect(x, y, x + width, y + height, "cell" if name == "orders" else "box")
            for place, line in enumerate(lines):
                unchanged = name == "complete" and number > 0 and line in cells[number - 1]
                picture.text(x + 12, y + 22 + place * 18, f"{line} (unchanged)" if unchanged else line)
        y += height + 12
    return picture.svg(y)


def _order(order: dict[str, Any]) -> str:
    return f"order {order['order_id']} {order['order_status']}"


def draw_append(runs: dict[str, Batches]) -> str:
    """Draw the rows that each batch of browser-stats-stateful emits in update and in append mode."""
    picture = Picture(
        "Update and append mode with a watermark",
        "The same visits counted in both modes. Update mode emits a window whenever its count changes. Append mode holds"
        " it back until the watermark has passed its end, and emits it once.",
    )
    update, append = runs["visits"], runs["visits_append"]
    assert [batch["batch"] for batch in update] == [batch["batch"] for batch in append]
    left, column = 92.0, 69.0
    rows: list[tuple[str, str, str, list[list[str]]]] = [
        ("visits", "", "cell", [_visits(batch) for batch in update]),
        ("watermark", "", "", [[clock(batch["watermark"])] if batch["watermark"] else ["none"] for batch in update]),
        ("update", "emits", "box", [_counts(batch) for batch in update]),
        ("append", "emits", "box", [_counts(batch) for batch in append]),
    ]
    y = 34.0
    for number, batch in enumerate(update):
        picture.text(left + (number + 0.5) * column, 22, f"batch {batch['batch']}", "small strong", "middle")
    for name, about, style, cells in rows:
        height = 16 * max(map(len, cells)) + 14
        picture.text(8, y + 20, name, "strong amber" if not style else "strong blue" if style == "box" else "strong")
        picture.text(8, y + 36, about, "small")
        for number, lines in enumerate(cells):
            x = left + number * column
            if style:
                picture.rect(x + 2, y, x + column - 2, y + height, style if lines else "cell")
            for place, line in enumerate(lines):
                look = {"box": "small strong" if ":" in line else "small", "cell": "small", "": "small amber"}[style]
                if style == "cell" and update[number]["late"]:
                    look = "small red"
                picture.text(x + column / 2, y + 19 + place * 16, line, look, "middle")
        y += height + 10
    return picture.svg(y)


def _visits(batch: dict[str, Any]) -> list[str]:
    lines = [clock(record(line)["eventTime"]) for line in batch["records"]]
    return [*lines, "late"] if batch["late"] else lines


def _counts(batch: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for row in sorted(batch["emitted"], key=lambda row: (row["window"]["start"], row["browser"])):
        start = clock(row["window"]["start"])
        lines += ([] if start in lines else [start]) + [f"{row['browser']} {row['count']}"]
    return lines


PICTURES: dict[str, Callable[[dict[str, Batches]], str]] = {
    "windows.svg": draw_windows,
    "sessions.svg": draw_sessions,
    "watermark.svg": draw_watermark,
    "browser-stats-stateful.svg": draw_visits,
    "output-modes.svg": draw_modes,
    "append-mode.svg": draw_append,
}


def draw(recorded: str) -> dict[str, str]:
    """Return the text of every picture, by file name."""
    runs = json.loads(recorded)
    return {name: drawing(runs) for name, drawing in PICTURES.items()}


def main() -> None:
    for name, svg in draw((IMAGES / "concepts.json").read_text(encoding="utf-8")).items():
        (IMAGES / name).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
