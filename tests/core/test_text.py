"""Counts with their nouns."""

from __future__ import annotations

import pytest

from headwater.core.text import batch_span, count


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2, "batch", "2 batches"),
        (1, "batch", "1 batch"),
        (3, "entry", "3 entries"),
        (3, "key", "3 keys"),
        (2, "other store", "2 other stores"),
        (1234567, "record", "1,234,567 records"),
        (-1, "row", "-1 rows"),
    ],
)
def test_count(number: int, noun: str, text: str) -> None:
    """A noun is in the plural unless there is one, and large numbers have thousands separators."""
    assert count(number, noun) == text


def test_count_without_separators() -> None:
    """The thousands separators can be omitted."""
    assert count(1234, "batch", grouped=False) == "1234 batches"


def test_batch_span() -> None:
    """One batch is named by itself, several by the first and the last."""
    assert (batch_span(4, 4), batch_span(4, 6)) == ("batch 4", "batches 4 to 6")
