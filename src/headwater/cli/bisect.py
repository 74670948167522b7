"""``headwater bisect``: the first batch whose state meets a condition."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import INSPECT, JsonObject, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import json_line, say
from headwater.cli.state_source import ENGINE, OPERATOR, SCHEMA, STORE, VAR, Engine, open_state
from headwater.core.ids import StoreRef


@app.command(rich_help_panel=INSPECT)
def bisect(
    checkpoint: CheckpointName,
    where: Annotated[str, typer.Option(metavar="SQL", help="Condition on the columns of the state.")],
    operator: Annotated[int | None, OPERATOR] = None,
    store: Annotated[str | None, STORE] = None,
    var: Annotated[str | None, VAR] = None,
    schema: Annotated[str | None, SCHEMA] = None,
    engine: Annotated[Engine, ENGINE] = Engine.auto,
    as_json: JsonObject = False,
) -> None:
    """Find the first batch after which a row of the state meets a condition.

    For a condition on single rows, the changes of each batch are searched, and the result is exact. A condition on the
    entire state, one that contains a select, is found by binary search, which assumes that the condition stays true
    once it is. Does not start Spark, unless only Spark can read the state files.

    Example:
      headwater bisect running-totals --where "total < 0"
    """
    source = open_state(checkpoint, StoreRef(operator, store, var), schema=schema, engine=engine)
    found = source.bisect(where)
    if as_json:
        json_line({"first_batch": found.first_batch, "tested": list(found.tested)})
        return
    batches = source.reader.readable(operator)
    if found.first_batch is None:
        say(f"not true after any of the batches {batches[0]} to {batches[-1]}")
    elif found.first_batch == batches[0]:
        say(f"already true after batch {batches[0]}, the oldest one whose state can be rebuilt")
    else:
        say(f"first true after batch {found.first_batch}")
