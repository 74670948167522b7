"""Passwords in URIs are used, but never printed or recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_support import free_port
from cli.running import Command
from corpus_support import load

PASSWORD = "correct-horse-battery"


def uris(port: int) -> list[str]:
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{PASSWORD}";'
    return [
        f"postgresql://tester:{PASSWORD}@127.0.0.1:{port}/postgres?table=t&key=browser,window",
        f"kafka://127.0.0.1:{port}/t?kafka.sasl.jaas.config={login}",
        f"kafka://u:{PASSWORD}@127.0.0.1:{port}/t",
        f"postgresql://tester:{PASSWORD}/with/slashes@127.0.0.1/postgres?table=t",
        f"s3a://key:{PASSWORD}@bucket/folder",
    ]


@pytest.mark.parametrize("number", range(5))
def test_errors_hide_passwords(tmp_path: Path, number: int, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """No error message and no file contains the password of a URI."""
    monkeypatch.chdir(tmp_path)
    for limit in ("ANSWER_SECONDS", "LOST_SECONDS"):  # nothing listens
        monkeypatch.setattr(f"headwater.kafka.clients.{limit}", 0.1)
    uri = uris(free_port())[number]
    (tmp_path / "in").mkdir()
    checkpoint = load("aggregation-changelog", tmp_path / "checkpoint").path
    commands = [
        ["run", "browser-stats-stateful", "--source", f"files:{tmp_path}/in", "--sink", uri],
        ["run", "browser-stats-stateful", "--source", uri, "--sink", "console:"],
        ["rewind", checkpoint, "--to", "1", "--sink", uri, "--source", uri, "--dry-run", "--json"],
        ["rewind", checkpoint, "--to", "1", "--sink", uri, "--source", uri, "--yes", "--allow-missing-input"],
        ["undo", checkpoint, "--yes"],
        ["fork", checkpoint, tmp_path / "fork", "--sink", uri],
        ["fsck", checkpoint, "--sink", uri],
        ["consume", "t", "--bootstrap", uri],
        ["generate", "visits", "--to", uri, "--count", "1"],
        ["log", uri],
    ]
    for arguments in commands:
        ran = command(*arguments)
        assert PASSWORD not in ran.out + ran.err, arguments
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes(), file
