"""``headwater diff``, ``history`` and ``bisect``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cli.running import Command
from corpus_support import CorpusCheckpoint

Corpus = Callable[[str], CorpusCheckpoint]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", ["aggregation-changelog", "aggregation-rocksdb", "aggregation-hdfs"])
def test_diff_json(name: str, command: Command, corpus: Corpus) -> None:
    """Each key that differs is printed on a line, with its values in the two states."""
    path = corpus(name).path
    before, after = (
        {repr(row["key"]): row["value"] for row in lines(command("state", path, "--at", batch, "--json").out)}
        for batch in (1, 4)
    )
    found = lines(command("diff", path, "1", "4", "--json").out)
    assert list(found[0]) == ["operator_id", "store", "change", "key", "before", "after"]
    for row in found:
        key = repr(row["key"])
        assert (row["before"], row["after"]) == (before.get(key), after.get(key))
    differing = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert {repr(row["key"]) for row in found} == differing
    assert {row["change"] for row in found} <= {"added", "removed", "changed"}


def test_diff_table_counts(command: Command, corpus: Corpus) -> None:
    """The table has a sign for each key, and the counts are printed before it."""
    ran = command("diff", corpus("aggregation-changelog").path, "0", "1")
    assert "batch 0 to 1: +" in ran.err
    assert any(line.strip().startswith(("+", "~", "-")) for line in ran.out.splitlines())


def test_diff_of_a_list(command: Command, corpus: Corpus) -> None:
    """A list that changed is shown with all its elements, before and after."""
    found = lines(command("diff", corpus("custom-changelog").path, "0", "3", "--json").out)
    lists = [row for row in found if row["after"] and "list_value" in row["after"]]
    assert lists
    assert all(isinstance(row["after"]["list_value"], list) for row in lists)


def test_history_json(command: Command, corpus: Corpus) -> None:
    """Each batch and key is printed on a line, with null where the key was absent."""
    path = corpus("aggregation-changelog").path
    rows = lines(command("state", path, "--at", 2, "--json").out)
    field = next(name for name, value in rows[0]["key"].items() if isinstance(value, str))
    wanted = rows[0]["key"][field]
    found = lines(command("history", path, "--key", f"{field}={wanted}", "--json").out)
    assert list(found[0]) == ["batch_id", "key", "value"]
    at_two = [(row["key"], row["value"]) for row in found if row["batch_id"] == 2 and row["value"] is not None]
    assert sorted(map(repr, at_two)) == sorted(
        repr((row["key"], row["value"])) for row in rows if row["key"][field] == wanted
    )
    assert any(row["value"] is None for row in found)


def test_history_of_changes_only(command: Command, corpus: Corpus) -> None:
    """``--changes`` omits batches that did not change the key."""
    path = corpus("aggregation-changelog").path
    key = lines(command("state", path, "--at", 2, "--json").out)[0]["key"]
    options = [part for name, value in key.items() if isinstance(value, str) for part in ("--key", f"{name}={value}")]
    everything = lines(command("history", path, *options, "--json").out)
    changes = lines(command("history", path, *options, "--changes", "--json").out)
    assert 0 < len(changes) < len(everything)
    assert [row for row in everything if row in changes] == changes


def test_history_of_an_unknown_key(command: Command, corpus: Corpus) -> None:
    """For a key that no batch has, no rows and a note are printed."""
    path = corpus("custom-changelog").path
    field = next(iter(lines(command("state", path, "--json").out)[0]["key"]))
    ran = command("history", path, "--key", f"{field}=no such value", "--json")
    assert ran.status == 0
    assert ran.out == ""
    assert "no such key" in ran.err


def test_history_needs_a_key_field(command: Command, corpus: Corpus) -> None:
    """An unknown field is refused with the known ones; so is an option that is not of the form FIELD=VALUE."""
    path = corpus("aggregation-changelog").path
    assert "key fields" in command("history", path, "--key", "nope=1").err
    assert command("history", path, "--key", "nope").status == 2


def test_bisect_json(command: Command, corpus: Corpus) -> None:
    """The result is the first batch whose state has a row that meets the condition."""
    path = corpus("aggregation-changelog").path
    count = "count"
    sizes = {
        batch: max(
            (row["value"][count] for row in lines(command("state", path, "--at", batch, "--json").out)), default=0
        )
        for batch in range(6)
    }
    most = max(sizes.values())
    expected = next(batch for batch, size in sizes.items() if size >= most)
    ran = command("bisect", path, "--where", f"{count} >= {most}", "--json")
    found = json.loads(ran.out)
    assert found["first_batch"] == expected
    assert expected in found["tested"]


def test_bisect_with_a_condition_on_the_entire_state(command: Command, corpus: Corpus) -> None:
    """A condition on the entire state is found by binary search."""
    path = corpus("aggregation-changelog").path
    ran = command("bisect", path, "--where", "(select count(*) from state) >= 1", "--json")
    assert json.loads(ran.out)["first_batch"] == 0


def test_bisect_without_a_result(command: Command, corpus: Corpus) -> None:
    """If no batch meets the condition, the result is null, or a sentence without --json."""
    path = corpus("aggregation-changelog").path
    assert json.loads(command("bisect", path, "--where", "count > 1000000", "--json").out)["first_batch"] is None
    assert "not true after any of the batches" in command("bisect", path, "--where", "count > 1000000").out
