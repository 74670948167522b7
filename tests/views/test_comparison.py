"""Rows of two runs, compared."""

from __future__ import annotations

from headwater.views.comparison import compare_rows


def row(name: str, count: int) -> dict[str, object]:
    return {"browser": name, "count": count, "last": f"2024-03-01T10:0{count % 10}:00.000Z"}


def test_order_does_not_matter_and_number_does() -> None:
    """The same rows in another order are the same; one of two equal rows too few is a difference."""
    assert compare_rows(1, [row("a", 1), row("b", 2)], [row("b", 2), row("a", 1)]).same
    found = compare_rows(1, [row("a", 1), row("a", 1)], [row("a", 1)])
    assert (found.only_before, found.only_after, found.differ) == ((row("a", 1),), (), ())


def test_rows_about_the_same_thing_are_paired() -> None:
    """A changed number is a row that differs; a new name is a new row. Times do not say what a row is about."""
    found = compare_rows(1, [row("a", 1), row("b", 2), row("c", 3)], [row("d", 1), row("a", 5), row("b", 2)])
    assert found.differ == ((row("a", 1), row("a", 5)),)
    assert (found.only_before, found.only_after) == ((row("c", 3),), (row("d", 1),))


def test_rows_of_numbers_alone_are_never_paired() -> None:
    """Two bare totals could be anything."""
    found = compare_rows(1, [{"total": 1}], [{"total": 2}])
    assert (found.only_before, found.only_after, found.differ) == (({"total": 1},), ({"total": 2},), ())


def test_many_different_rows() -> None:
    """Ten thousand rows that all differ are paired without a thought of time."""
    before = [row(f"b{number}", 1) for number in range(10_000)]
    after = [row(f"b{number}", 2) for number in reversed(range(10_000))]
    found = compare_rows(1, before, after)
    assert len(found.differ) == 10_000
    assert all(old["browser"] == new["browser"] for old, new in found.differ)
