"""``headwater broker``: a real Kafka on this machine."""

from __future__ import annotations

from pathlib import Path

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import json_line, note, say

broker = typer.Typer(help="A real Kafka on this machine: one node, on loopback, no Docker.", no_args_is_help=True)
app.add_typer(broker, name="broker", rich_help_panel=RUN)

DATA = typer.Option(Path(".headwater/kafka"), "--data", help="The folder of its topics and logs.")


@broker.command()
def start(
    port: int = typer.Option(
        None, "--port", min=1, max=65535, help="Where it listens; by default where it did last, at first 9092."
    ),
    data: Path = DATA,
) -> None:
    """Start the broker in the background; it answers when this returns.

    Example:
      headwater broker start --port 9092
    """
    from headwater.kafka import broker as local_broker

    before = local_broker.status(data)
    if not before.running:
        note("starting Kafka ...")
    now = local_broker.start(data, port, on_fetch=note)
    already = "already " if before.pid == now.pid else ""
    say(f"Kafka is {already}running on {now.bootstrap} (pid {now.pid}, data in {data})")


@broker.command()
def stop(data: Path = DATA) -> None:
    """Stop the broker. Its topics stay for the next start.

    Example:
      headwater broker stop
    """
    from headwater.kafka import broker as local_broker

    pid = local_broker.stop(data)
    say(f"Kafka was not running (data in {data})" if pid is None else f"Kafka stopped (pid {pid}, data kept in {data})")


@broker.command()
def status(data: Path = DATA, as_json: bool = typer.Option(False, "--json", help="One JSON object.")) -> None:
    """Say whether the broker runs, and where.

    Example:
      headwater broker status --json
    """
    from headwater.kafka import broker as local_broker

    now = local_broker.status(data)
    if as_json:
        json_line(now.as_dict())
    elif now.running:
        answers = "running" if now.ready else "running but not answering"
        say(f"Kafka is {answers} on {now.bootstrap} (pid {now.pid}, data in {data})")
    else:
        say(f"Kafka is not running (data in {data})")
