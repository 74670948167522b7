"""Options of the commands that read state."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from headwater.cli.output import note
from headwater.core.errors import UsageProblem

if TYPE_CHECKING:
    from headwater.core.ids import StoreRef
    from headwater.spark.state_source import StateSource


class Engine(StrEnum):
    auto = "auto"
    native = "native"
    spark = "spark"


BATCH_HELP = "Batch: 41, HEAD, HEAD~3, @10:30 (UTC) or the name of a restore point."
SHOWN_ROWS = 50
OPERATOR = typer.Option(help="Only this stateful operator.")
STORE = typer.Option(help="Only this state store, such as left-keyToNumValues of a join.")
VAR = typer.Option(
    help="Only this variable of custom state; timers for its timers. Hidden variables are shown only if named."
)
SCHEMA = typer.Option(
    metavar="DDL", help="Schema of a state store that has none on disk: 'key: user STRING; value: count BIGINT'."
)
ENGINE = typer.Option(help="Reader: native reads the state files, spark uses Spark, auto prefers native.")


def parse_key(texts: list[str]) -> dict[str, str]:
    """Return the fields that ``--key FIELD=VALUE`` names, given once or several times."""
    return parse_fields(texts, "bad-key", "--key browser=Firefox")


def parse_fields(texts: list[str], code: str, example: str) -> dict[str, str]:
    """Return the fields of an option of the form FIELD=VALUE, given once or several times."""
    fields = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise UsageProblem(code, f"{text!r} is not of the form FIELD=VALUE", remedy=example)
        fields[name] = value
    return fields


def open_state(checkpoint: str, ref: StoreRef, *, schema: str | None, engine: str = Engine.native) -> StateSource:
    """Open the state of a checkpoint, and print remarks about it to standard error."""
    from headwater.cli.checkpoint_options import open_to_read
    from headwater.cli.process import keep_freed_memory
    from headwater.spark.state_source import StateSource

    keep_freed_memory()
    return StateSource(open_to_read(checkpoint), ref, schema=schema, engine=engine, note=note)


def rows_to_show(limit: int | None) -> int | None:
    """Return how many rows a table shows for ``--limit``: ``SHOWN_ROWS`` by default, None for all."""
    return None if limit == 0 else limit or SHOWN_ROWS
