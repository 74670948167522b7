"""``headwater produce``: lines from standard input to a topic."""

from __future__ import annotations

import sys

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import note
from headwater.cli.topics import BOOTSTRAP, bootstrap_or_default


@app.command(rich_help_panel=RUN)
def produce(
    topic: str = typer.Argument(help="The topic; it is made if the broker does not have it."),
    bootstrap: str = BOOTSTRAP,
    partition: int = typer.Option(None, "--partition", min=0, help="Send everything to this partition."),
    key_separator: str = typer.Option(
        None, "--key-separator", metavar="TEXT", help="What stands before it on a line is the record's key."
    ),
) -> None:
    """Send each line of standard input as a record.

    Example:
      echo '{"userId": 1}' | headwater produce visits
    """
    from headwater.kafka.records import TopicWriter, send_lines

    server = bootstrap_or_default(bootstrap)
    with TopicWriter(server, topic) as writer:
        if writer.created:
            note(f"created topic {topic}")
        if sys.stdin.isatty():
            note(f"each line is a record for {topic}; end with Ctrl-D")
        try:
            send_lines(writer, sys.stdin.buffer, partition=partition, separator=key_separator or None)
        except KeyboardInterrupt:
            note("")
    note(f"{writer.sent} record{'' if writer.sent == 1 else 's'} sent to {topic} on {server}")
