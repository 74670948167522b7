"""Corrupt state files lead to rows or to an error with a message, never to an unexpected exception."""

from __future__ import annotations

import random

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.reader import read_answers
from headwater.views.state_lines import state_lines

NAMES = ["aggregation-hdfs", "custom-changelog", "custom-rocksdb", "avro-custom", "typed-values-changelog", "lzf-hdfs"]


@pytest.mark.parametrize("rounds", [12, pytest.param(100, marks=pytest.mark.slow)], ids=["few", "many"])
@pytest.mark.parametrize("name", NAMES)
def test_corrupt_files_raise_readable_errors(name: str, rounds: int) -> None:
    """Whichever bytes change or go missing, the reader returns rows or raises an error with evidence."""
    dice = random.Random(11)
    contents = as_memory_files(name).contents
    paths = sorted(path for path in contents if path.startswith("state/") and not path.endswith(".crc"))
    refused = 0
    for _ in range(rounds):
        path = dice.choice(paths)
        corrupted = {**contents, path: _corrupted(contents[path], dice)}
        try:
            for answer in read_answers(MemoryTree(corrupted)):
                list(state_lines(answer))
        except CheckpointUnreadable as error:
            refused += 1
            assert error.evidence
    assert refused


def _corrupted(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    if dice.random() < 0.5:
        return data[:at]
    return data[:at] + dice.randbytes(2) + data[at + 2 :]
