"""``headwater migrate``: refusals before Spark starts, and other stores. ``test_check_checkpoint`` has the rest."""

from __future__ import annotations

from pathlib import Path

from cli.running import Command
from corpus_support import load


def test_checkpoint_without_state(command: Command, tmp_path: Path) -> None:
    """A checkpoint without state is refused before Spark starts."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metadata").write_text('{"id":"3b1e2a34-0000-4000-8000-000000000000"}')
    ran = command("migrate", str(tmp_path / "empty"), "--job", "word-count", "--yes")
    assert (ran.status, ran.err.partition(":")[0]) == (15, "error[no-state]"), ran.err


def test_another_store(command: Command, tmp_path: Path) -> None:
    """The state store changes without a job and without Spark; a plan alone changes nothing."""
    checkpoint = str(load("aggregation-hdfs", tmp_path / "checkpoint").path)
    planned = command("migrate", checkpoint, "--store", "rocksdb-changelog", "--dry-run")
    assert "RocksDB with changelogs, checkpoint format 1" in planned.out, planned.err
    done = command("migrate", checkpoint, "--store", "rocksdb-changelog", "--checkpoint-format", "2", "--yes")
    assert (done.status, "done: batch 10 was added" in done.err) == (0, True), done.err
    again = command("migrate", checkpoint, "--checkpoint-format", "2", "--yes")
    assert again.err.partition(":")[0] == "error[nothing-to-do]", again.err
    for options in ([], ["--job", "word-count", "--store", "hdfs"]):
        assert command("migrate", checkpoint, *options).err.partition(":")[0] == "error[bad-option]"


def test_options_of_a_job_do_not_change_a_store(command: Command, tmp_path: Path) -> None:
    """Options that need --job are refused with --store, where they would have no effect."""
    checkpoint = str(load("aggregation-hdfs", tmp_path / "checkpoint").path)
    given = {
        "--set": "a=1",
        "--keys": "window",
        "--merge": "count=sum",
        "--source-map": "a=b",
        "--mode": "update",
        "--source": "files:in",
        "--setting": "a=1",
        "--conf": "a=1",
    }
    for options in (["--accept-change"], *map(list, given.items())):
        ran = command("migrate", checkpoint, "--store", "rocksdb", *options, "--dry-run")
        assert (ran.status, f"{options[0]} has no effect without --job" in ran.err) == (2, True), ran.err
        assert ran.out == ""
