"""``headwater consume``: a topic's records as lines."""

from __future__ import annotations

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import json_line, note, say
from headwater.cli.topics import BOOTSTRAP, bootstrap_or_default


@app.command(rich_help_panel=RUN)
def consume(
    topic: str = typer.Argument(help="The topic."),
    bootstrap: str = BOOTSTRAP,
    from_beginning: bool = typer.Option(False, "--from-beginning", help="Also what is there already."),
    count: int = typer.Option(None, "--count", min=1, help="End after so many records."),
    timeout: float = typer.Option(None, "--timeout", min=0, help="End once no record has come for so many seconds."),
    as_json: bool = typer.Option(False, "--json", help="Also partition, offset, timestamp and key, as JSON."),
) -> None:
    """Print a topic's records, one a line, until Ctrl-C.

    Example:
      headwater consume visits --from-beginning --count 10 --timeout 5
    """
    from headwater.kafka.records import read_records, text

    server = bootstrap_or_default(bootstrap)
    shown = 0
    try:
        for record in read_records(server, topic, from_beginning=from_beginning, count=count, quiet_seconds=timeout):
            if as_json:
                json_line(record.as_dict())
            else:
                say(text(record.value) or "")
            shown += 1
    except KeyboardInterrupt:
        note("")
    if count is None or shown < count:
        note(f"{shown} record{'' if shown == 1 else 's'} of {topic}")
