"""Damaged state files: refusals in our words, or the state, and never anything else."""

from __future__ import annotations

import random

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles.reader import read_answers
from headwater.views.state_lines import state_lines

NAMES = ["aggregation-hdfs", "custom-changelog", "custom-rocksdb", "avro-custom", "typed-values-changelog", "lzf-hdfs"]


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_refused_in_our_words(name: str) -> None:
    """Whatever bytes change or go missing, a reader gets rows or a refusal that can be understood."""
    chance = random.Random(11)
    contents = as_memory_files(name).contents
    paths = sorted(path for path in contents if path.startswith("state/") and not path.endswith(".crc"))
    refused = 0
    for _ in range(40):
        path = chance.choice(paths)
        damaged = {**contents, path: _damaged(contents[path], chance)}
        try:
            for answer in read_answers(MemoryTree(damaged)):
                list(state_lines(answer))
        except CheckpointUnreadable as error:
            refused += 1
            assert error.evidence
    assert refused


def _damaged(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    if chance.random() < 0.5:
        return data[:at]
    return data[:at] + chance.randbytes(2) + data[at + 2 :]
