"""``headwater topics``: list, create and delete topics. Also the connection options of all Kafka commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import RUN, JsonLines, app
from headwater.cli.output import json_lines, say, table
from headwater.core.text import count

if TYPE_CHECKING:
    from headwater.kafka.options import Connection

topics = typer.Typer(invoke_without_command=True)
app.add_typer(topics, name="topics", rich_help_panel=RUN)

Bootstrap = Annotated[
    str | None,
    typer.Option("--bootstrap", metavar="H:P", help="Broker; default: the local broker, else 127.0.0.1:9092."),
]
KafkaOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="Connection option, named as in Spark: kafka.security.protocol=SASL_SSL. Repeatable.",
    ),
]


def select_connection(bootstrap: str | None, options: list[str] | None) -> Connection:
    """Return the connection that ``--bootstrap`` and ``--option`` select."""
    from headwater.cli.job_options import parse_pairs
    from headwater.kafka.broker import default_connection
    from headwater.kafka.options import PREFIX, Connection

    local = default_connection()
    base = local if bootstrap in (None, local.servers) else Connection(bootstrap or "")
    given = {
        name if name.startswith(PREFIX) else f"{PREFIX}{name}": value
        for name, value in parse_pairs(options, "--option").items()
    }
    return Connection(base.servers, {**base.options, **given})


@topics.callback()
def list_topics(
    context: typer.Context,
    bootstrap: Bootstrap = None,
    option: KafkaOptions = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include Kafka's internal topics.")] = False,
    as_json: JsonLines = False,
) -> None:
    """List topics, or create and delete them.

    Example:
      headwater topics
    """
    if context.invoked_subcommand:
        context.obj = (bootstrap, option)
        return
    from headwater.kafka import topics as kafka_topics

    connection = select_connection(bootstrap, option)
    found = kafka_topics.list_topics(connection, internal=internal)
    if as_json:
        json_lines(topic.as_dict() for topic in found)
    elif found:
        table(["topic", "partitions", "records"], [(topic.name, len(topic.offsets), topic.records) for topic in found])
    else:
        say(f"no topics yet on {connection.servers}")


@topics.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the new topic.")],
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Number of partitions.")] = 1,
    bootstrap: Bootstrap = None,
    option: KafkaOptions = None,
) -> None:
    """Create a topic.

    Example:
      headwater topics create visits --partitions 2
    """
    from headwater.kafka.topics import create_topic

    connection = select_connection(bootstrap or context.obj[0], option or context.obj[1])
    create_topic(connection, name, partitions)
    say(f"created {name} with {count(partitions, 'partition', grouped=False)} on {connection.servers}")


@topics.command()
def delete(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Topic to delete, with all its records.")],
    bootstrap: Bootstrap = None,
    option: KafkaOptions = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic with all its records.

    Example:
      headwater topics delete visits --yes
    """
    import sys

    from headwater.core.errors import UsageProblem
    from headwater.kafka.topics import delete_topic, find_topic

    connection = select_connection(bootstrap or context.obj[0], option or context.obj[1])
    topic = find_topic(connection, name)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageProblem(
                "confirmation-needed",
                f"deleting {name} loses its {topic.records} records",
                remedy=f"headwater topics delete {name} --yes",
            )
        typer.confirm(f"Delete {name} and its {topic.records} records?", abort=True, err=True)
    delete_topic(connection, name)
    say(f"deleted {name} on {connection.servers}")
