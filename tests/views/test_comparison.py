"""Comparison of the rows of two runs."""

from __future__ import annotations

from headwater.views.comparison import compare_rows


def row(name: str, count: int) -> dict[str, object]:
    return {"browser": name, "count": count, "last": f"2024-03-01T10:0{count % 10}:00.000Z"}


def test_rows_are_compared_as_multisets() -> None:
    """The order of rows does not matter; a missing duplicate is a difference."""
    assert compare_rows(1, [row("a", 1), row("b", 2)], [row("b", 2), row("a", 1)]).same
    found = compare_rows(1, [row("a", 1), row("a", 1)], [row("a", 1)])
    assert (found.only_before, found.only_after, found.differ) == ((row("a", 1),), (), ())


def test_rows_with_the_same_identity_are_paired() -> None:
    """A row with a changed number differs; a row with a new name is new. Times do not identify a row."""
    found = compare_rows(1, [row("a", 1), row("b", 2), row("c", 3)], [row("d", 1), row("a", 5), row("b", 2)])
    assert found.differ == ((row("a", 1), row("a", 5)),)
    assert (found.only_before, found.only_after) == ((row("c", 3),), (row("d", 1),))


def test_rows_of_numbers_alone_are_never_paired() -> None:
    """Rows without a text or a struct have no identity."""
    found = compare_rows(1, [{"total": 1}], [{"total": 2}])
    assert (found.only_before, found.only_after, found.differ) == (({"total": 1},), ({"total": 2},), ())


def test_many_different_rows() -> None:
    """Ten thousand rows that all differ are paired quickly."""
    before = [row(f"b{number}", 1) for number in range(10_000)]
    after = [row(f"b{number}", 2) for number in reversed(range(10_000))]
    found = compare_rows(1, before, after)
    assert len(found.differ) == 10_000
    assert all(old["browser"] == new["browser"] for old, new in found.differ)
