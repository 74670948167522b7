"""Counts with their nouns, and ranges of batches, as messages show them."""

from __future__ import annotations

import re

_TAKES_ES = re.compile(r"(?:s|x|z|ch|sh)$")
_TAKES_IES = re.compile(r"(?<=[^aeiou])y$")


def count(number: int, noun: str, *, grouped: bool = True) -> str:
    """Return a number with its noun in singular or plural: ``1 row``, ``1,234 rows``, ``2 batches``.

    ``grouped=False`` omits the thousands separators.
    """
    shown = f"{number:,}" if grouped else str(number)
    return f"{shown} {noun if number == 1 else plural(noun)}"


def displayable(text: str) -> str:
    """Return a text that can be encoded: a byte of a file name that is not UTF-8 becomes ``\\xe9``."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a character, as JSON can contain it
        return text.encode("utf-8", "backslashreplace").decode()


def batch_span(first: int, last: int) -> str:
    """Return ``batch 4``, or ``batches 4 to 6`` if there are several."""
    return f"batch {first}" if first == last else f"batches {first} to {last}"


def plural(noun: str) -> str:
    """Return the regular English plural: ``batches``, ``entries``, ``keys``."""
    if _TAKES_ES.search(noun):
        return f"{noun}es"
    if _TAKES_IES.search(noun):
        return f"{noun[:-1]}ies"
    return f"{noun}s"
