"""``headwater topics``: what topics a broker has."""

from __future__ import annotations

import typer

from headwater.cli.app import RUN, app
from headwater.cli.output import json_lines, say, table

topics = typer.Typer(invoke_without_command=True)
app.add_typer(topics, name="topics", rich_help_panel=RUN)

BOOTSTRAP = typer.Option(
    None, "--bootstrap", metavar="H:P", help="The broker; by default the local one, else 127.0.0.1:9092."
)


def bootstrap_or_default(bootstrap: str | None) -> str:
    from headwater.kafka.broker import default_bootstrap

    return bootstrap or default_bootstrap()


@topics.callback()
def list_them(
    context: typer.Context,
    bootstrap: str = BOOTSTRAP,
    internal: bool = typer.Option(False, "--internal", help="Kafka's own topics too."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line."),
) -> None:
    """List topics, or create and delete them.

    Example:
      headwater topics
    """
    if context.invoked_subcommand:
        context.obj = bootstrap
        return
    from headwater.kafka.topics import list_topics

    server = bootstrap_or_default(bootstrap)
    found = list_topics(server, internal=internal)
    if as_json:
        json_lines(topic.as_dict() for topic in found)
    elif found:
        table(["topic", "partitions", "records"], [(topic.name, len(topic.offsets), topic.records) for topic in found])
    else:
        say(f"no topics yet on {server}")


@topics.command()
def create(
    context: typer.Context,
    name: str = typer.Argument(help="The new topic's name."),
    partitions: int = typer.Option(1, "--partitions", min=1, help="How many partitions it has."),
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Make a topic.

    Example:
      headwater topics create visits --partitions 2
    """
    from headwater.kafka.topics import create_topic

    server = bootstrap_or_default(bootstrap or context.obj)
    create_topic(server, name, partitions)
    say(f"created {name} with {partitions} partition{'s' if partitions > 1 else ''} on {server}")


@topics.command()
def delete(
    context: typer.Context,
    name: str = typer.Argument(help="The topic to remove, with all its records."),
    bootstrap: str = BOOTSTRAP,
    yes: bool = typer.Option(False, "--yes", help="Do not ask."),
) -> None:
    """Remove a topic with all its records.

    Example:
      headwater topics delete visits --yes
    """
    import sys

    from headwater.core.errors import UsageProblem
    from headwater.kafka.topics import delete_topic, find_topic

    server = bootstrap_or_default(bootstrap or context.obj)
    topic = find_topic(server, name)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageProblem(
                "confirmation-needed",
                f"deleting {name} loses its {topic.records} records",
                remedy=f"headwater topics delete {name} --yes",
            )
        typer.confirm(f"Delete {name} and its {topic.records} records?", abort=True, err=True)
    delete_topic(server, name)
    say(f"deleted {name} on {server}")
