"""Positions in topics, as users write them."""

from __future__ import annotations

import pytest

from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.kafka.offsets import Partition
from headwater.kafka.positions import parse_position, require_in_range

RANGES = {Partition("visits", 0): (10, 100), Partition("visits", 1): (0, 50)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"visits":{"0":50,"1":7}}', {"visits": {0: 50, 1: 7}}),
        (" 0:50, 1:7 ", {"visits": {0: 50, 1: 7}}),
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("1970-01-01T00:00:02Z", 2000),
    ],
)
def test_a_position_has_several_forms(text: str, expected: object) -> None:
    """Offsets as JSON or as pairs, an end of the topic, or a time."""
    assert parse_position(text, ["visits"]) == expected


@pytest.mark.parametrize("text", ["nonsense", "{", '{"visits":3}', '{"visits":{"a":"b"}}', '{"clicks":{"0":1}}', "0:"])
def test_other_texts_are_refused(text: str) -> None:
    """With an example of a valid position."""
    with pytest.raises(UsageProblem) as refused:
        parse_position(text, ["visits"])
    assert refused.value.code == "bad-position"


def test_pairs_need_a_single_topic() -> None:
    """Otherwise nothing says which topic is meant."""
    with pytest.raises(UsageProblem):
        parse_position("0:1", ["visits", "clicks"])


@pytest.mark.parametrize(
    ("offsets", "code"),
    [
        ({0: 9, 1: 0}, "offset-gone"),
        ({0: 10, 1: 51}, "offset-ahead"),
        ({0: 10}, "bad-position"),
        ({0: 10, 1: 0, 2: 0}, "bad-position"),
    ],
)
def test_the_broker_has_to_have_the_position(offsets: dict[int, int], code: str) -> None:
    """Offsets before the first or after the next one are refused, and so are positions without a partition."""
    with pytest.raises(ChangeRefused) as refused:
        require_in_range({"visits": offsets}, RANGES)
    assert refused.value.code == code
    require_in_range({"visits": {0: 10, 1: 50}}, RANGES)
