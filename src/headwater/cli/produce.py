"""``headwater produce``: write lines from standard input to a topic."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import note
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
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="Separator between key and value on each line."),
    ] = None,
) -> None:
    """Send each line of standard input as a record.

    Example:
      echo '{"userId": 1}' | headwater produce visits
    """
    from headwater.kafka.records import TopicWriter, send_lines

    connection = select_connection(bootstrap, option)
    with TopicWriter(connection, topic) as writer:
        if writer.created:
            note(f"created topic {topic}")
        if sys.stdin.isatty():
            note(f"each line is a record for {topic}; end with Ctrl-D")
        try:
            send_lines(writer, sys.stdin.buffer, partition=partition, separator=key_separator or None)
        except KeyboardInterrupt:
            note("")
    note(f"{count(writer.sent, 'record', grouped=False)} sent to {topic} on {connection.servers}")
