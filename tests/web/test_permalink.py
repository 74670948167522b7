"""Addresses that lead to a batch or a key."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from headwater.web.permalink import Place

PLACES = [
    Place(),
    Place(batch=0),
    Place("team/a b", 7, 3, "operator 0, store default", {"browser": "Fire & fox", "window": None}),
]


@pytest.mark.parametrize("place", PLACES)
def test_place_survives_the_address(place: Place) -> None:
    """A place that is written to an address is read from it again."""
    assert Place.from_query(dict(parse_qsl(place.query()[1:]))) == place


def test_text_that_cannot_be_encoded() -> None:
    """Half of a character in a name or a key does not break the address."""
    assert Place("caf\udce9", key={"a": "\ud800"}).query() == "?name=caf%5Cxe9&key=%7B%22a%22%3A%22%5Cud800%22%7D"


@pytest.mark.parametrize(
    "query",
    [
        {"batch": "-1"},
        {"batch": "x"},
        {"batch": "9" * 40},
        {"key": "[1]"},
        {"key": '{"a":1}'},
        {"key": "{"},
        {"x": "y"},
    ],
)
def test_invalid_parts_are_ignored(query: dict[str, str]) -> None:
    """An address that was changed by hand leads to the start of the page."""
    assert Place.from_query(query) == Place()
