"""``headwater consume``: print the records of a topic."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import json_line, note, say
from headwater.cli.record_formats import MessageName, RecordFormat, RegistryUrl, SchemaFile, Subject
from headwater.cli.topics import Bootstrap, KafkaOptions, select_connection
from headwater.core.text import count


@app.command(rich_help_panel=RUN)
def consume(
    topic: Annotated[str, typer.Argument(help="Topic to read.")],
    bootstrap: Bootstrap = None,
    option: KafkaOptions = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the oldest record instead of new ones.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many records.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Stop when no record has arrived for this many seconds.")
    ] = None,
    form: RecordFormat = "text",
    schema: SchemaFile = None,
    registry: RegistryUrl = None,
    subject: Subject = None,
    message: MessageName = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with partition, offset, timestamp and key.")
    ] = False,
) -> None:
    """Print the records of a topic, one per line, until Ctrl-C.

    With --format avro or protobuf, each record is printed as a JSON object, and one that cannot be decoded as base64.

    Examples:
      headwater consume visits --from-beginning --count 10 --timeout 5
      headwater consume orders --format avro --registry http://127.0.0.1:8081
    """
    from headwater.cli.record_formats import record_printer, record_schema
    from headwater.kafka.records import read_records

    show = record_printer(record_schema(form, topic, schema, registry, subject, message))
    connection = select_connection(bootstrap, option)
    shown = 0
    try:
        for record in read_records(
            connection, topic, from_beginning=from_beginning, count=limit, quiet_seconds=timeout
        ):
            value, problem = show(record.value)
            if problem is not None:
                note(f"{topic}[{record.partition}]@{record.offset} is malformed: {problem}")
            if as_json:
                json_line({**record.as_dict(), "value": value})
            else:
                say(value or "")
            shown += 1
    except KeyboardInterrupt:
        note("")
    if limit is None or shown < limit:
        note(f"{count(shown, 'record', grouped=False)} from {topic}")
