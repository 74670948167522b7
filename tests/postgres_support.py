"""A real PostgreSQL server for tests, in a temporary folder and on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from broker_support import free_port


@dataclass(frozen=True)
class PostgresServer:
    """The server of the test session. Each test uses table names of its own."""

    url: str

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            connection.execute("SET TIME ZONE 'UTC'")
            return connection.execute(query, values).fetchall()  # type: ignore[arg-type]

    def do(self, command: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(command)  # type: ignore[arg-type]


def binaries() -> Path | None:
    """Return the folder of the server's programs, which Debian does not add to PATH."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return installed[-1].parent if installed else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a session. It cannot run as root, so for root it runs as the user postgres."""
    programs = binaries()
    if programs is None:
        pytest.skip("skipped: PostgreSQL is not installed (Debian: apt-get install postgresql)")
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("skipped: PostgreSQL cannot run as root, and there is no user postgres")
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    # Not in pytest's own folder, to which other users have no access.
    with tempfile.TemporaryDirectory(prefix="headwater-postgres-") as place:
        if identity:
            os.chown(place, identity["user"], identity["group"])
        yield from _serve(programs, Path(place), identity)


def _serve(programs: Path, folder: Path, identity: dict[str, Any]) -> Iterator[PostgresServer]:
    data, port = folder / "data", free_port()

    def run(program: str, *arguments: object) -> None:
        command = [str(programs / program), *map(str, arguments)]
        settings = {**os.environ, "LC_ALL": "C"}
        subprocess.run(command, check=True, cwd=folder, env=settings, stdout=subprocess.DEVNULL, **identity)

    run("initdb", "--pgdata", data, "--username", "tester", "--auth", "trust", "--no-sync", "--encoding", "UTF8")
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder} -c fsync=off"
    run("pg_ctl", "start", "--pgdata", data, "--log", folder / "server.log", "--wait", "--options", options)
    try:
        yield PostgresServer(f"postgresql://tester@127.0.0.1:{port}/postgres")
    finally:
        run("pg_ctl", "stop", "--pgdata", data, "--mode", "immediate")
