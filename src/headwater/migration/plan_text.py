"""What the state of a query means: its stateful operators in a text form that is the same for every run of the same code.

Columns are replaced by the expressions that define them, down to the columns of the sources. So another name for a column
changes nothing, while another expression changes the text of every operator that depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.checkpoint.plan_record import StatefulOperator
from headwater.core.text import count
from headwater.migration.plan_nodes import Column, PlanNode

_OPERATORS = {
    "Aggregate": "aggregation",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication within watermark",
    "Distinct": "distinct",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "GlobalLimit": "limit",
    "Join": "join",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
}
_STATE_FUNCTIONS = ("applyInPandasWithState", "flatMapGroupsWithState", "transformWithState")
# Nodes that change neither rows nor columns.
_TRANSPARENT = (
    "CollectMetrics",
    "LocalLimit",
    "ResolvedHint",
    "Repartition",
    "RepartitionByExpression",
    "SubqueryAlias",
)
# Not part of the meaning: which fields of a value belong to which aggregate.
BUFFER_SIZES = "buffer sizes"
_ID = re.compile(r"#(\d+)L?(?:-T\d+ms)?")
_ALIAS = re.compile(r" AS (?:.*)#\d+L?(?:-T\d+ms)?", re.DOTALL)
_UNITS_US = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("millisecond", 1_000),
)


@dataclass(frozen=True)
class _Rows:
    """The rows of a node: what each of its columns is, and what decides which rows there are."""

    columns: Mapping[int, str]
    conditions: tuple[str, ...] = ()
    watermarks: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


@dataclass
class _Found:
    """The stateful operators of a plan, and its sources, root first and left before right, as Spark numbers them."""

    operators: list[StatefulOperator | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def stateful_operators(plan: PlanNode) -> tuple[StatefulOperator, ...]:
    """Return the stateful operators of a plan in the order of Spark's operator ids."""
    found = _Found()
    _rows(plan, found)
    return tuple(operator for operator in found.operators if operator is not None)


def source_names(plan: PlanNode) -> tuple[str, ...]:
    """Return the sources of a plan in the order of their offsets. One that is used twice occurs twice."""
    found = _Found()
    _rows(plan, found)
    return tuple(found.sources)


def _rows(node: PlanNode, found: _Found) -> _Rows:
    if node.source is not None:
        found.sources.append(node.source)
        prefix = f"{node.source}." if node.source else ""
        return _Rows({column.id: f"{prefix}{column.name}" for column in node.output})
    place = None
    kind = _stateful_kind(node)
    if kind:
        place = len(found.operators)
        found.operators.append(None)
    inputs = [_rows(child, found) for child in node.children]
    rows = _joined(inputs)
    if node.name not in _TRANSPARENT and node.code:
        rows = _Rows(rows.columns, rows.conditions, rows.watermarks, tuple(dict.fromkeys((*rows.code, *node.code))))
    if kind and place is not None:
        found.operators[place] = _operator(kind, node, rows)
    return _output(node, inputs, rows)


def _stateful_kind(node: PlanNode) -> str | None:
    kind = _OPERATORS.get(node.name)
    if kind is None or not node.is_streaming:
        return None
    if kind == "join" and not all(child.is_streaming for child in node.children):
        return None
    return kind


def _operator(kind: str, node: PlanNode, rows: _Rows) -> StatefulOperator:
    names = _names(node)
    facts: dict[str, tuple[str, ...]] = {}
    if node.keys:
        facts["keys"] = tuple(_expanded(key, rows, names) for key in node.keys)
    elif kind == "distinct":
        facts["keys"] = tuple(rows.columns.get(column.id, column.name) for column in node.output)
    if node.functions:
        facts["aggregates"] = tuple(_expanded(function, rows, names) for function in node.functions)
        facts[BUFFER_SIZES] = tuple(map(str, node.buffer_sizes))
    if kind == "limit":
        facts["limit"] = tuple(_expanded(text, rows, names) for text in node.expressions)
    facts |= {name: (_expanded(text, rows, names),) for name, text in node.details.items() if text}
    if kind == "join":
        facts["kept columns"] = tuple(
            sorted(rows.columns.get(column.id, column.name) for child in node.children for column in child.output)
        )
    facts["filters"] = tuple(sorted(set(rows.conditions)))
    facts["watermark"] = tuple(sorted(set(rows.watermarks)))
    facts["python"] = rows.code
    return StatefulOperator(kind, {name: texts for name, texts in facts.items() if texts})


def _output(node: PlanNode, inputs: list[_Rows], rows: _Rows) -> _Rows:
    """Return the rows that leave a node."""
    names = _names(node)
    match node.name:
        case "Project" | "Aggregate":
            texts = node.expressions[len(node.keys) :] if node.name == "Aggregate" else node.expressions
            pairs = zip(node.output, texts, strict=True)
            columns = {column.id: _expanded(_ALIAS.sub("", text), rows, names) for column, text in pairs}
            return _with(rows, {**rows.columns, **columns} if node.name == "Project" else columns)
        case "Filter":
            if node.children[0].source is not None:  # removes the malformed records
                return rows
            return _with(rows, rows.columns, *(_expanded(text, rows, names) for text in node.expressions))
        case "EventTimeWatermark":
            return _watermarked(node, rows)
        case "Union":
            return _united(node, inputs)
        case "Join" if not _stateful_kind(node):
            static = "with a static table" if any(not child.is_streaming for child in node.children) else ""
            text = f"{node.details.get('type', '')} join {static} on {node.details.get('condition', '')}"
            return _with(rows, rows.columns, _expanded(text, rows, names))
        case "Expand":
            return _with(rows, {**rows.columns, **_expanded_windows(node, rows, names)})
        case name if name in _TRANSPARENT or not node.children:
            return _with(rows, {**{column.id: column.name for column in node.output}, **rows.columns})
        case name if _OPERATORS.get(name) in _STATE_FUNCTIONS:
            return _Rows({column.id: column.name for column in node.output}, watermarks=rows.watermarks)
        case name if name in _OPERATORS:
            return rows
        case name:
            text = ", ".join(_expanded(text, rows, names) for text in node.expressions)
            new = {column.id: f"{name}({text}).{column.name}" for column in node.output}
            return _with(rows, {**new, **rows.columns}, f"{name} {text}".strip())


def _with(rows: _Rows, columns: Mapping[int, str], *conditions: str) -> _Rows:
    return _Rows(columns, (*rows.conditions, *conditions), rows.watermarks, rows.code)


def _joined(inputs: list[_Rows]) -> _Rows:
    return _Rows(
        {number: text for rows in inputs for number, text in rows.columns.items()},
        tuple(text for rows in inputs for text in rows.conditions),
        tuple(text for rows in inputs for text in rows.watermarks),
        tuple(dict.fromkeys(text for rows in inputs for text in rows.code)),
    )


def _united(node: PlanNode, inputs: list[_Rows]) -> _Rows:
    """Return the rows of a union, whose columns come from the same position of each input. Their order has no meaning."""
    columns = {}
    for place, column in enumerate(node.output):
        texts = [
            rows.columns.get(child.output[place].id, column.name)
            for rows, child in zip(inputs, node.children, strict=True)
        ]
        columns[column.id] = " or ".join(sorted(set(texts)))
    rows = _joined(inputs)
    return _Rows(
        {**rows.columns, **columns},
        tuple(sorted(rows.conditions)),
        tuple(sorted(rows.watermarks)),
        tuple(sorted(rows.code)),
    )


def _watermarked(node: PlanNode, rows: _Rows) -> _Rows:
    before = {column.id for child in node.children for column in child.output if column.delay_ms is not None}
    new = [column for column in node.output if column.delay_ms is not None and column.id not in before]
    if not new and node.details.get("column"):  # a second watermark on the same column
        named = Column.parse(node.details["column"])
        new = [column for column in node.output if column.id == named.id]
    texts = [f"{rows.columns.get(one.id, one.name)} {interval((one.delay_ms or 0) * 1000)}" for one in new]
    return _Rows(rows.columns, rows.conditions, (*rows.watermarks, *texts), rows.code)


def _expanded_windows(node: PlanNode, rows: _Rows, names: Mapping[int, str]) -> dict[int, str]:
    """Return the new columns of an ``Expand``, which lists the windows that a record belongs to."""
    width = len(node.output)
    lists = [node.expressions[at : at + width] for at in range(0, len(node.expressions), width)]
    columns = {}
    for place, column in enumerate(node.output):
        if column.id not in rows.columns:
            texts = [_expanded(_ALIAS.sub("", one[place]), rows, names) for one in lists if place < len(one)]
            windows = [text for text in texts if text.startswith("window(")]
            columns[column.id] = windows[0] if windows else " or ".join(dict.fromkeys(texts))
    return columns


def _names(node: PlanNode) -> dict[int, str]:
    return {column.id: column.name for one in (node, *node.children) for column in one.output}


def _expanded(text: str, rows: _Rows, names: Mapping[int, str]) -> str:
    """Return an expression with its columns replaced by what they are, and without ids."""
    ids = {int(found[1]) for found in _ID.finditer(text)}
    known = {number: names[number] for number in ids if number in names}
    if known:
        # A column may be named like the end of another: the id decides.
        forms = "|".join(
            rf"(?<!\w){re.escape(name)}#{number}(?!\d)L?(?:-T\d+ms)?" for number, name in sorted(known.items())
        )

        def definition(found: re.Match[str]) -> str:
            number = int(_ID.findall(found[0])[-1])
            return rows.columns.get(number, known[number])

        text = re.sub(forms, definition, text)
    return _readable(_ID.sub("", text))


_TUMBLING = re.compile(
    r"named_struct\(start, knownnullable\(precisetimestampconversion\(\(+"
    r"precisetimestampconversion\((?P<column>.+?), Timestamp\w*Type, LongType\)"
)
_SLIDE = re.compile(r"LongType\) - (?P<offset>-?\d+)\) % (?P<slide>\d+)\)")
_LENGTH = re.compile(r"\+ (?P<length>\d+)\), LongType, Timestamp\w*Type\)+$")
_SESSION = re.compile(
    r"named_struct\(start, precisetimestampconversion\(precisetimestampconversion\((?P<column>.+?), Timestamp\w*Type, "
    r"LongType\), LongType, Timestamp\w*Type\), end, .*? \+ (?:cast\()?(?P<gap>.+?)(?: as interval\))?"
    r"(?: as timestamp\w*\))?(?:, Timestamp\w*Type, LongType\), LongType, Timestamp\w*Type)\)+$"
)


def _readable(text: str) -> str:
    """Return ``window(at, 5 minutes)`` for the expression that Spark makes of it, and other expressions unchanged."""
    started, length = _TUMBLING.match(text), _LENGTH.search(text)
    slides = {(found["offset"], found["slide"]) for found in _SLIDE.finditer(text)}
    if started and length and len(slides) == 1:
        ((offset, slide),) = slides
        parts = [started["column"], interval(int(length["length"]))]
        if slide != length["length"] or offset != "0":
            parts.append(interval(int(slide)))
        if offset != "0":
            parts.append(interval(int(offset)))
        return f"window({', '.join(parts)})"
    session = _SESSION.match(text)
    return f"session_window({session['column']}, {session['gap']})" if session else text


def interval(microseconds: int) -> str:
    """Return a duration as people write it: ``5 minutes``."""
    for unit, size in _UNITS_US:
        if microseconds and microseconds % size == 0:
            return count(microseconds // size, unit, grouped=False)
    return f"{microseconds} microseconds" if microseconds else "0 seconds"


def shown(operators: tuple[StatefulOperator, ...]) -> Iterator[str]:
    """Yield the operators as lines for people."""
    for number, operator in enumerate(operators):
        for name, texts in operator.facts.items():
            yield f"operator {number} ({operator.kind}): {name}: {', '.join(texts)}"
