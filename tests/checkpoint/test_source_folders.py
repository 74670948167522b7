"""Which folder under ``sources/`` belongs to which offset."""

from __future__ import annotations

import pytest

from headwater.checkpoint.log_entries import OffsetEntry, parse_offsets
from headwater.checkpoint.source_folders import source_folders


def entries(*batches: list[int]) -> list[OffsetEntry]:
    texts = ("\n".join(["v1", "{}", *(f'{{"logOffset":{number}}}' for number in batch)]) for batch in batches)
    return [parse_offsets(text.encode(), "offsets/0") for text in texts]


@pytest.mark.parametrize(
    ("batches", "present", "recorded", "expected"),
    [
        ([[0, 0], [1, 1]], ["0", "1"], (), ["0", "1"]),  # two sources that read one file per batch
        ([[0, 0], [1, 1]], ["0"], (), ["0", "0"]),  # a join of a stream with itself
        ([[0, 0, 3], [1, 1, 4]], ["0", "1"], (), ["0", "0", "1"]),
        ([[0, 3, 0], [1, 4, 1]], ["0", "1"], (), ["0", "1", "0"]),
        ([[0, 0, 0], [1, 1, 1]], ["0", "1"], (), ["0", "1", "1"]),  # unknown, but the offsets are the same
        ([[0, 0, 0], [1, 1, 1]], ["0", "1"], ("a", "a", "b"), ["0", "0", "1"]),
        ([[0, 0, 0, 0]], ["0", "1", "2"], ("a", "a", "b", "c"), ["0", "0", "1", "2"]),
        ([[0, 5], [1, 6]], ["0"], (), ["0", "1"]),  # the second source has no log
        ([[0, 5], [1, 6]], ["1"], (), ["0", "1"]),
        ([[0, 0]], [], (), ["0", "1"]),
    ],
)
def test_folders(batches: list[list[int]], present: list[str], recorded: tuple[str, ...], expected: list[str]) -> None:
    """Uses of one source share its folder; different sources have folders of their own."""
    found = source_folders(entries(*batches), present, recorded)
    assert [found[str(number)] for number in range(len(expected))] == expected
