"""``headwater passwd``: the users of the page."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app import INSPECT, app
from headwater.cli.output import note
from headwater.core.errors import UsageProblem


class _Role(StrEnum):
    read = "read"
    change = "change"


@app.command(rich_help_panel=INSPECT)
def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Password file, which is created if it is missing.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="User name.")],
    role: Annotated[
        _Role | None,
        typer.Option(help="What the user may do on the page; default: read for a new user.", show_default=False),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the user.")] = False,
) -> None:
    """Add or change a user of the page.

    Asks for the password, or reads it from standard input if that is not a terminal. The file contains a salted hash.
    A running page of `headwater ui --password-file FILE` notices the change; the sessions of the user end.

    Example:
      headwater passwd users.txt ann --role change
    """
    from headwater.web.accounts import Account, PasswordFile, hash_password, require_user_name

    users = PasswordFile(file)
    accounts = dict(users.accounts()) if file.exists() else {}
    known = accounts.get(require_user_name(name))
    if remove:
        if known is None:
            raise UsageProblem("no-user", f"{file} has no user {name!r}", evidence={"users": ", ".join(accounts)})
        del accounts[name]
        users.write(accounts)
        note(f"removed {name}")
        return
    chosen = role.value if role else known.role if known else "read"
    accounts[name] = Account(name, "change" if chosen == "change" else "read", hash_password(_password(name)))
    users.write(accounts)
    note(f"{'changed' if known else 'added'} {name}, who may {chosen}")


def _password(name: str) -> str:
    from headwater.web.accounts import SHORTEST_PASSWORD

    if sys.stdin.isatty():
        given = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    if len(given) < SHORTEST_PASSWORD:
        raise UsageProblem("bad-user", f"a password has at least {SHORTEST_PASSWORD} characters")
    return str(given)
