"""Spark's own reader as the one that is asked when files cannot be read here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import CorpusCheckpoint, load
from headwater.core.errors import CheckpointUnreadable

Corpus = Callable[[str], CorpusCheckpoint]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize("name", ["session-hdfs", "aggregation-format2"])
def test_both_engines_agree(command: Command, corpus: Corpus, name: str) -> None:
    """Spark's reader, asked through the command line, prints the very lines that ours does, in either format."""
    path = corpus(name).path
    ours = command("state", path, "--json", "--engine", "native")
    spark = command("state", path, "--json", "--engine", "spark")
    assert spark.status == 0, spark.err
    assert sorted(map(_row, spark.out.splitlines())) == sorted(map(_row, ours.out.splitlines()))


def _row(line: str) -> str:
    return repr(json.loads(line))


def test_auto_asks_spark_and_says_so(command: Command, tmp_path: Path) -> None:
    """A format that is not known here is handed to Spark with one line about it; here Spark cannot read it either."""
    held = load("aggregation-hdfs", tmp_path)
    for path in held.path.glob("state/0/*/*.snapshot"):
        path.unlink()
    (held.path / "state/0/0/1.delta").write_bytes(b"compressed in a way of tomorrow")
    (held.path / "state/0/0/.1.delta.crc").unlink(missing_ok=True)
    ran = command("state", held.path)
    assert ran.err.startswith("read by Spark, which takes longer: state/0/0/1.delta begins with")
    assert ran.status == CheckpointUnreadable.exit_status
    assert "spark-cannot-read" in ran.err
