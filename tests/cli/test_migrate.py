"""``headwater migrate``: what it refuses before Spark starts. Its work is in ``test_check_checkpoint``, with check and run."""

from __future__ import annotations

from pathlib import Path

from cli.running import Command


def test_checkpoint_without_state(command: Command, tmp_path: Path) -> None:
    """A checkpoint without state is refused before Spark starts."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metadata").write_text('{"id":"3b1e2a34-0000-4000-8000-000000000000"}')
    ran = command("migrate", str(tmp_path / "empty"), "--job", "word-count", "--yes")
    assert (ran.status, ran.err.partition(":")[0]) == (15, "error[no-state]"), ran.err
