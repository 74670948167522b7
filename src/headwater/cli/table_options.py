"""Options of the commands that change a table together with its checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.lakehouse.tables import RewindableTable

KeepForeign = Annotated[
    bool,
    typer.Option("--keep-foreign", help="Keep what other programs have committed to a Delta table in the meantime."),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="auto|spark",
        help="What writes to a Delta table: auto is Headwater itself, spark starts Spark and lets Delta do it.",
    ),
]


def table_engine(name: str) -> Callable[[RewindableTable], RewindableTable]:
    """Return what makes a table one that the chosen engine writes to."""
    if name == "auto":
        return lambda table: table
    if name != "spark":
        raise UsageProblem("bad-option", f"--engine is auto or spark, not {name!r}", remedy="--engine spark")
    from headwater.spark.delta_engine import written_by_spark

    return written_by_spark


def open_recorded_table(reference: str) -> RewindableTable | None:
    """Return the table of an interrupted change, with the engine that the change was planned for."""
    from headwater.lakehouse.tables import open_table, parse_table_uri

    parsed, table = parse_table_uri(reference), open_table(reference)
    if parsed is None or table is None:
        return None
    return table_engine(parsed.options.get("engine", "auto"))(table)
