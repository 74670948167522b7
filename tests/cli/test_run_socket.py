"""A job on a socket: it cannot resume, so each run gets its own checkpoint."""

from __future__ import annotations

import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker_support import free_port, run_here
from cli.commands import assert_no_stack_trace, running
from cli.running import Command

pytestmark = pytest.mark.services

OWN_CHECKPOINT = "a socket cannot be read again, so each run gets its own checkpoint: "


@contextmanager
def line_server(*lines: str) -> Iterator[int]:
    """Send the lines to every client, keep the connection open, and yield the port."""
    clients: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                clients.append(client)
                client.sendall("".join(f"{line}\n" for line in lines).encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for client in clients:
                client.close()


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".headwater" / "checkpoints").iterdir())


def words(folder: Path, checkpoint: str) -> str:
    shown = run_here(
        "state", checkpoint, "--sql", "SELECT sum(count)::INT AS words FROM state", "--format", "csv", cwd=folder
    )
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.split()[-1]


@pytest.mark.slow
def test_started_again_after_a_kill(tmp_path: Path) -> None:
    """Every run counts from zero on its own checkpoint; the job's name means the newest, and fsck finds no error."""
    with line_server("spark streams state", "spark keeps state") as port:
        run = ("run", "word-count", "--source", f"socket://localhost:{port}")
        for number in (signal.SIGKILL, signal.SIGINT):
            with running(tmp_path, *run) as job:
                told = job.wait_for(OWN_CHECKPOINT)
                job.wait_for("state 4 rows")
                job.signal_group(number)
                assert job.end() == (0 if number == signal.SIGINT else -9)
                assert_no_stack_trace(job.errors)
            newest = Path(told.partition(OWN_CHECKPOINT)[2].strip())
            assert re.fullmatch(r"word-count-\d{8}-\d{6}", newest.name)
            assert checkpoints(tmp_path)[-1] == newest.name
            assert words(tmp_path, "word-count") == words(tmp_path, newest.name) == "6"
    assert len(checkpoints(tmp_path)) == 2
    for name in checkpoints(tmp_path):
        checked = run_here("fsck", name, cwd=tmp_path)
        assert checked.returncode == 0, checked.stdout
    assert run_here("log", "word-count", "--json", cwd=tmp_path).stdout.count('"committed"') >= 1


def test_given_checkpoint_is_refused(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket with --checkpoint is refused before anything starts, whether the checkpoint exists or not."""
    monkeypatch.chdir(tmp_path)
    ran = command("run", "word-count", "--source", f"socket://127.0.0.1:{free_port()}", "--checkpoint", "ck")
    assert (ran.status, ran.err[:24]) == (10, "error[socket-checkpoint]")
    assert "\nhelp: omit --checkpoint" in ran.err
    assert list(tmp_path.iterdir()) == []
