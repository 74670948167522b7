"""Results as HTML for notebooks.

The HTML needs no style sheet, script or network, inherits the colors of the notebook, light or dark, and shows a bounded
number of rows. Every text is escaped, because keys, values and paths come from users.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from headwater.checkpoint.history import Batch, History
from headwater.core.finding import Finding
from headwater.core.text import count
from headwater.migration.comparison import Comparison
from headwater.views.batch_table import COLUMNS, batch_cells
from headwater.views.batches import batch_facts, offset_range
from headwater.views.code_check import TITLES
from headwater.views.formatting import format_time, shorten

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.timemachine.change import Change
    from headwater.views.plans import PlanText
    from headwater.views.state_cells import Cells
    from headwater.views.table_label import TableLabel

SHOWN_ROWS = 50
_SHOWN_BATCHES = 10
_MAX_CELL = 500
# A page without a doctype would otherwise show tables in black, also on a dark background.
_TABLE = '<table style="color:inherit">'
_CELL = "text-align:left;white-space:pre-wrap"
_DIM = "opacity:0.7"


def checkpoint_html(history: History) -> str:
    """Show where a checkpoint is, which job runs on it, and its last batches."""
    ids, job = history.batch_ids, history.logs.job
    facts = [("job", job.job)] if job.job else []
    facts += [(f"source {name}".rstrip(), uri) for name, uri in job.inputs.items()]
    facts += [("sink", job.sink)] if job.sink else []
    batches = history.batches(last=_SHOWN_BATCHES)
    if batches:
        facts.append(("batches", f"{ids[0]} to {ids[-1]}"))
        facts.append(("watermark", f"{format_time(batches[-1].watermark_ms)} UTC"))
    else:
        facts.append(("batches", "none yet"))
    return _block(f"Checkpoint {history.files.location}", _facts(facts), _batch_table(batches, len(ids)))


def batches_html(batches: Sequence[Batch]) -> str:
    """Show batches as ``headwater log`` does, the newest last."""
    title = count(len(batches), "batch")
    return _block(title, _batch_table(batches[-SHOWN_ROWS:], len(batches)))


def batch_html(batch: Batch) -> str:
    """Show one batch: its times, its watermark, and what it read from each source."""
    facts = [*batch_facts(batch), *((source.label, offset_range(source)) for source in batch.sources)]
    return _block(f"Batch {batch.batch_id}, {batch.status}", _facts(facts))


def plan_html(plan: PlanText) -> str:
    """Show what a plan would do."""
    return _block(
        plan.title,
        _facts(plan.facts),
        *(f"<p><b>warning:</b> {escape(warning)}</p>" for warning in plan.warnings),
        f'<p style="{_DIM}">A plan changes nothing until <code>.apply()</code> carries it out.</p>',
    )


def comparison_html(comparison: Comparison) -> str:
    """Show what changed between a checkpoint and a job's code."""
    names = ("difference", "checkpoint", "code", "verdict", "why", "remedy")
    rows = [
        (one.what, one.old or "none", one.new or "none", TITLES[one.verdict], one.why, one.remedy or "")
        for one in comparison.differences
    ]
    return _block(
        f"{comparison.job}: {TITLES[comparison.verdict]}",
        _table(names, rows, 0) if rows else "",
        *(f"<p>{escape(text)}</p>" for text in comparison.notes),
    )


def change_html(change: Change, done_at_ms: int) -> str:
    """Show a change that was carried out."""
    facts = [("done", f"{format_time(done_at_ms)} UTC"), ("change", change.change_id)]
    return _block(f"Done: {change.about}", _facts(facts))


def findings_html(findings: Sequence[Finding]) -> str:
    """Show the findings of ``fsck``."""
    rows = [
        (finding.severity, finding.code, finding.path, finding.message, "yes" if finding.repairable else "no")
        for finding in findings[:SHOWN_ROWS]
    ]
    names = ("severity", "code", "path", "message", "repairable")
    return _block(
        count(len(findings), "finding") if findings else "No findings", _table(names, rows, len(findings) - len(rows))
    )


def dropped_html(records: Sequence[dict[str, Any]]) -> str:
    """Show late and malformed records."""
    late = sum(record["reason"] == "late" for record in records)
    named = any(record["source"] for record in records)
    rows = [
        (
            str(record["batch_id"]),
            record["reason"],
            *([record["source"]] if named else []),
            _position(record),
            record["value"] if record["value"] is not None else record.get("value_base64"),
            record["detail"],
        )
        for record in records[:SHOWN_ROWS]
    ]
    names = ("batch", "reason", *(["source"] if named else []), "position", "value", "detail")
    title = f"{late} late, {len(records) - late} malformed"
    return _block(title, _table(names, rows, len(records) - len(rows)))


def arrow_html(table: pa.Table) -> str | None:
    """Show a table that ``Checkpoint`` returned, or one that was derived from it; None for any other table."""
    from headwater.views.table_label import label_of  # noqa: PLC0415  needs pyarrow

    label = label_of(table)
    if label is None:
        return None
    cells, summary = _arrow_cells(label, table)
    # A longer table is several tables together, to which no single caption applies.
    title = f"{_caption(label)}: {summary}" if table.num_rows <= label.rows else summary
    return _block(title, _table(cells.columns, cells.rows, cells.omitted))


def show_tables_in_ipython() -> None:
    """Let IPython show labeled tables with ``arrow_html``; other Arrow tables are shown as before.

    ``pyarrow.Table`` cannot be given a ``_repr_html_``. IPython's registry of formatters is made for such types. A
    formatter that the user has registered for tables stays.
    """
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    formatter = shell.display_formatter.formatters["text/html"]
    if ("pyarrow.lib", "Table") not in formatter.deferred_printers and not _knows_tables(formatter):
        formatter.for_type_by_name("pyarrow.lib", "Table", arrow_html)


def _knows_tables(formatter: Any) -> bool:
    pyarrow: Any = sys.modules.get("pyarrow")
    return pyarrow is not None and pyarrow.Table in formatter.type_printers


def _caption(label: TableLabel) -> str:
    match label.shows:
        case "view":
            return f"State of {label.job} after batch {label.batches[0]}"
        case "state":
            return f"State of {label.place}, after batch {label.batches[0]}"
        case "diff":
            return f"Changes of {label.place}, batch {label.batches[0]} to {label.batches[1]}"
        case "history":
            return f"History of keys of {label.place}"


def _arrow_cells(label: TableLabel, table: pa.Table) -> tuple[Cells, str]:
    """Return the rows to show, and a summary of them. A derived table that lacks columns is shown as it is."""
    from headwater.views import state_cells as cells  # noqa: PLC0415  needs pyarrow
    from headwater.views.table_label import answer_of, diff_of, history_of  # noqa: PLC0415

    rows = count(table.num_rows, "row")
    if table.num_rows < label.rows:
        rows = f"{table.num_rows:,} of {count(label.rows, 'row')}"
    names = set(table.column_names)
    if label.shows == "state" and {"key", "partition_id"} < names:
        return cells.state_cells(answer_of(label, table), SHOWN_ROWS), rows
    if label.shows == "diff" and {"change", "key", "before", "after", "partition_id"} <= names:
        found = diff_of(label, table)
        return cells.diff_cells(found, SHOWN_ROWS), cells.diff_counts(found)
    if label.shows == "history" and {"batch_id", "key", "value", "changed", "partition_id"} <= names:
        return cells.history_cells(history_of(label, table), SHOWN_ROWS), rows
    return cells.table_cells(table, SHOWN_ROWS), rows


def _batch_table(batches: Sequence[Batch], total: int) -> str:
    rows = [batch_cells(batch) for batch in batches]
    shown = [number for number in range(len(COLUMNS)) if any(row[number] for row in rows)]
    names = [COLUMNS[number].lower().replace("(utc)", "(UTC)") for number in shown]
    return _table(names, [[row[number] for number in shown] for row in rows], total - len(rows), "earlier")


def _position(record: dict[str, Any]) -> str:
    if record["kind"] == "kafka":
        return f"{record['topic']}[{record['partition']}]@{record['offset']}"
    return f"{record['path']}:{record['line']}"


def _block(title: str, *parts: str) -> str:
    return f"<div><p><b>{escape(title)}</b></p>{''.join(parts)}</div>"


def _facts(facts: Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr>{_cell(label, 'th')}{_cell(text)}</tr>" for label, text in facts)
    return f"{_TABLE}<tbody>{rows}</tbody></table>"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str | None]], omitted: int = 0, what: str = "more") -> str:
    if not rows:
        return ""
    head = "".join(_cell(name, "th") for name in columns)
    body = "".join(f"<tr>{''.join(_cell(text) for text in row)}</tr>" for row in rows)
    more = f'<p style="{_DIM}">… {omitted:,} {what}</p>' if omitted > 0 else ""
    return f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(text: str | None, tag: str = "td") -> str:
    return f'<{tag} style="{_CELL}">{"" if text is None else escape(shorten(text, _MAX_CELL))}</{tag}>'
