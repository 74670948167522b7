"""Spark's own reader as a fallback for state files that Headwater cannot read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.running import Command
from corpus_support import CorpusCheckpoint, load
from headwater.core.errors import CheckpointUnreadable

pytestmark = pytest.mark.services

Corpus = Callable[[str], CorpusCheckpoint]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name != "typed-struct-format2" else [])
        for name in (
            "typed-struct-format2",
            "session-hdfs",
            "aggregation-format2",
            "typed-values-hdfs",
            "typed-keys-changelog",
        )
    ],
)
def test_both_engines_agree(command: Command, corpus: Corpus, name: str) -> None:
    """``headwater state`` prints the same rows with Spark's reader as with its own, in either checkpoint format."""
    path = corpus(name).path
    native = command("state", path, "--json", "--engine", "native")
    spark = command("state", path, "--json", "--engine", "spark")
    assert spark.status == 0, spark.err
    assert sorted(map(_row, spark.out.splitlines())) == sorted(map(_row, native.out.splitlines()))


def _row(line: str) -> str:
    """Return a row with all of its fields, also those of one name. Spark's reader returns a variant as its JSON text."""

    def fields(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return [(name, parse(value) if str(value).startswith("{") else value) for name, value in pairs]

    def parse(text: str) -> Any:
        return json.loads(text, object_pairs_hook=fields, parse_int=str, parse_float=str)

    return repr(parse(line))


def test_auto_falls_back_to_spark(command: Command, tmp_path: Path) -> None:
    """An unknown format is passed to Spark with a notice. In this test Spark cannot read it either."""
    loaded = load("aggregation-hdfs", tmp_path)
    for path in loaded.path.glob("state/0/*/*.snapshot"):
        path.unlink()
    (loaded.path / "state/0/0/1.delta").write_bytes(b"compressed in an unknown format")
    (loaded.path / "state/0/0/.1.delta.crc").unlink(missing_ok=True)
    ran = command("state", loaded.path)
    assert ran.err.startswith("using Spark to read the state, which takes longer: state/0/0/1.delta begins with")
    assert ran.status == CheckpointUnreadable.exit_status
    assert "spark-cannot-read" in ran.err
