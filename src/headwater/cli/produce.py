"""``headwater produce``: write lines from standard input to a topic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import note
from headwater.cli.record_formats import MessageName, RecordFormat, RegistryUrl, SchemaFile, Subject
from headwater.cli.topics import Bootstrap, KafkaOptions, select_connection
from headwater.core.text import count


@app.command(rich_help_panel=RUN)
def produce(
    topic: Annotated[str, typer.Argument(help="Topic; created if it does not exist.")],
    bootstrap: Bootstrap = None,
    option: KafkaOptions = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Send all records to this partition.")
    ] = None,
    form: RecordFormat = "text",
    schema: SchemaFile = None,
    registry: RegistryUrl = None,
    subject: Subject = None,
    message: MessageName = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Separator between key and value on each line."),
    ] = None,
) -> None:
    """Send each line of standard input as a record.

    With --format avro or protobuf, each line is a JSON object, and the record is that object in this format.

    Examples:
      echo '{"userId": 1}' | headwater produce visits
      headwater produce orders --format avro --schema order.avsc < orders.jsonl
    """
    from headwater.cli.record_formats import line_encoder, record_schema, registered
    from headwater.kafka.records import TopicWriter, send_lines

    chosen = record_schema(form, topic, schema, registry, subject, message)
    if chosen is not None and registry is not None and chosen.schema_id is None:
        chosen = registered(chosen, subject or f"{topic}-value")
    encode = line_encoder(chosen) if chosen is not None else None
    connection = select_connection(bootstrap, option)
    with TopicWriter(connection, topic) as writer:
        if writer.created:
            note(f"created topic {topic}")
        if sys.stdin.isatty():
            note(f"each line is a record for {topic}; end with Ctrl-D")
        try:
            send_lines(writer, sys.stdin.buffer, partition=partition, separator=key_separator or None, encode=encode)
        except KeyboardInterrupt:
            note("")
    note(f"{count(writer.sent, 'record', grouped=False)} sent to {topic} on {connection.servers}")
