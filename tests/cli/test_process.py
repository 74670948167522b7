"""The process of a command: its exit status and its output, also to a reader that stops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_support import HEADWATER
from corpus_support import CorpusCheckpoint

Corpus = Callable[[str], CorpusCheckpoint]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HEADWATER, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_a_command_has_its_status_and_all_its_output(corpus: Corpus) -> None:
    """The console script prints the same and ends with the same status as ``python -m headwater``."""
    checkpoint = corpus("aggregation-hdfs").path
    for arguments in (["log", checkpoint, "--json"], ["log", checkpoint / "missing"], ["log", "--nonsense"], ["jobs"]):
        module = [sys.executable, "-m", "headwater", *map(str, arguments)]
        expected = subprocess.run(module, capture_output=True, text=True, check=False)
        ended = run(*arguments)
        assert (ended.returncode, ended.stdout, ended.stderr) == (expected.returncode, expected.stdout, expected.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_output_that_cannot_be_written_is_not_success(corpus: Corpus) -> None:
    """On a full disk, a command does not end as if its output had been written."""
    command = [HEADWATER, "log", str(corpus("aggregation-hdfs").path), "--json"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode
    assert "No space left" in ended.stderr


def test_a_reader_that_stops_gets_no_traceback(corpus: Corpus) -> None:
    """A command whose output is a closed pipe ends quietly."""
    command = [HEADWATER, "log", str(corpus("aggregation-hdfs").path), "--json"]
    closed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert closed.stdout is not None and closed.stderr is not None
    closed.stdout.close()
    assert "Traceback" not in closed.stderr.read()
    closed.wait()
