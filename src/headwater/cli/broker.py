"""``headwater broker``: a Kafka broker on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import RUN, JsonObject, app
from headwater.cli.output import json_line, note, say

if TYPE_CHECKING:
    from headwater.kafka.broker import BrokerStatus
    from headwater.kafka.broker_settings import Security

broker = typer.Typer(
    help="Run a Kafka broker on this machine: one node, on loopback, without Docker.", no_args_is_help=True
)
app.add_typer(broker, name="broker", rich_help_panel=RUN)

DataFolder = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Folder for its topics, logs and certificates.")
]
DEFAULT_DATA = Path(".headwater/kafka")


@broker.command()
def start(
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="Port to listen on; default: that of the last start, first 9092."
        ),
    ] = None,
    data: DataFolder = DEFAULT_DATA,
    tls: Annotated[
        bool | None,
        typer.Option(
            "--tls/--no-tls", help="Encrypt with TLS, or --no-tls; creates a certificate. Default: as before."
        ),
    ] = None,
    sasl_plain: Annotated[
        str | None,
        typer.Option("--sasl-plain", metavar="USER:PASSWORD", help="Require this login. Default: as before."),
    ] = None,
    no_sasl: Annotated[bool, typer.Option("--no-sasl", help="Require no login.")] = False,
) -> None:
    """Start the broker in the background; it is ready when the command returns.

    Without options it starts as it did last. With TLS or a login, the options that clients need are written to
    client.properties in the data folder. The commands topics, produce and consume use that file for the broker in
    .headwater/kafka; all commands use it if HEADWATER_KAFKA_PROPERTIES names it.

    Examples:
      headwater broker start --port 9092
      headwater broker start --port 9093 --data .headwater/secure --tls --sasl-plain ann:secret
    """
    from headwater.core.errors import UsageProblem
    from headwater.kafka import broker as local_broker

    if sasl_plain and no_sasl:
        raise UsageProblem("bad-option", "--sasl-plain and --no-sasl cannot be combined", remedy="use one of them")
    before = local_broker.status(data)
    security = changed_security(before.security, tls, sasl_plain, no_sasl=no_sasl)
    if not before.running:
        note("starting Kafka ...")
    now = local_broker.start(data, port, security, on_fetch=note)
    already = "already " if before.pid == now.pid else ""
    say(f"Kafka is {already}running on {now.bootstrap} ({_details(now, data)})")
    if now.client_properties:
        note(f"for clients: export HEADWATER_KAFKA_PROPERTIES={now.client_properties}")


@broker.command()
def stop(
    data: DataFolder = DEFAULT_DATA,
    wipe: Annotated[
        bool, typer.Option("--wipe", help="Remove the data folder too, with all topics, logs and certificates.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --wipe: do not ask for confirmation.")] = False,
) -> None:
    """Stop the broker. Its topics are kept for the next start, unless --wipe removes them.

    --wipe works on a stopped broker too. The removal cannot be undone. A checkpoint of a job that has read the topics
    keeps its offsets, which no longer match any records: headwater rewind CKPT --redo 0 restarts such a job from
    scratch.

    Examples:
      headwater broker stop
      headwater broker stop --wipe --yes
    """
    from headwater.cli.checkpoint_options import confirm
    from headwater.kafka import broker as local_broker
    from headwater.kafka import wipe as wiping

    if not wipe:
        pid = local_broker.stop(data)
        stopped = f"Kafka stopped (pid {pid}, data kept in {data})"
        say(f"Kafka was not running (data in {data})" if pid is None else stopped)
        return
    if not data.exists():
        say(f"Kafka was not running, and there is no data in {data}")
        return
    wiping.check_wipe(data)
    question = f"Stop the broker and remove {data} with all its topics? This cannot be undone."
    if not confirm(question, yes=yes, remedy=f"headwater broker stop --data {data} --wipe --yes"):
        return
    pid = wiping.wipe(data)
    say(f"Kafka {'was not running' if pid is None else f'stopped (pid {pid})'}; removed {data}")


@broker.command()
def status(data: DataFolder = DEFAULT_DATA, as_json: JsonObject = False) -> None:
    """Show whether the broker is running, and where.

    Example:
      headwater broker status --json
    """
    from headwater.kafka import broker as local_broker

    now = local_broker.status(data)
    if as_json:
        json_line(now.as_dict())
    elif now.running:
        state = "running" if now.ready else "running but not answering"
        say(f"Kafka is {state} on {now.bootstrap} ({_details(now, data)})")
    else:
        say(f"Kafka is not running (data in {data})")


def changed_security(last: Security, tls: bool | None, login: str | None, *, no_sasl: bool) -> Security:
    """Return the security of the last start with the changes that the command line asks for."""
    from headwater.kafka.broker_settings import Security, parse_login

    user, password = parse_login(login) if login else (last.user, last.password)
    return Security(last.tls if tls is None else tls, None if no_sasl else user, "" if no_sasl else password)


def _details(now: BrokerStatus, data: Path) -> str:
    protocol = now.security.protocol
    return ("" if protocol == "PLAINTEXT" else f"{protocol}, ") + f"pid {now.pid}, data in {data}"
