"""Keys that are found by a text over all batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker_support import run_here
from corpus_support import CorpusCheckpoint
from headwater.statefiles.reader import StateReader
from headwater.views.key_search import KeySearch, search_keys

Corpus = Callable[[str], CorpusCheckpoint]


def search(reader: StateReader, text: str, place: int = 0, **options: Any) -> KeySearch:
    target = [one for one in reader.targets(reader.latest()) if one.kind != "hidden"][place]
    *_, found = search_keys(reader, target, text, **options)
    return found


def leaves(key: Any) -> list[str]:
    if isinstance(key, dict):
        return [leaf for value in key.values() for leaf in leaves(value)]
    return [] if key is None else [str(key)]


def expected(checkpoint: CorpusCheckpoint, text: str) -> dict[str, list[int]]:
    """Return which batches changed each matching key, from the answers of Spark's own reader for every batch."""
    changed: dict[str, list[int]] = {}
    before: dict[str, str] = {}
    for answer in sorted(checkpoint.answers, key=lambda one: one.batch_id):
        now = {
            json.dumps(row["key"], ensure_ascii=False): json.dumps(row["value"])
            for row in answer.rows
            if any(text.lower() in leaf.lower() for leaf in leaves(row["key"]))
        }
        for key in now.keys() | before.keys():
            if now.get(key) != before.get(key):
                changed.setdefault(key, []).append(answer.batch_id)
        before = now
    return {json.dumps(leaves(json.loads(key)), ensure_ascii=False): batches for key, batches in changed.items()}


@pytest.mark.parametrize("name", ["aggregation-changelog", "aggregation-hdfs", "aggregation-format2", "dedup-rocksdb"])
@pytest.mark.parametrize("text", ["B", "11:00", "nobody"])
def test_changes_of_found_keys(corpus: Corpus, name: str, text: str) -> None:
    """A search finds the keys with a text in a field, also removed ones, and every batch that changed them."""
    checkpoint = corpus(name)
    found = search(StateReader(checkpoint.files), text)
    shown = {json.dumps(leaves(key.key), ensure_ascii=False): list(key.batches) for key in found.keys}
    assert shown == expected(checkpoint, text)
    assert found.partitions_done == found.partitions and not found.is_stopped


def test_beginning_of_a_field(corpus: Corpus) -> None:
    """`b*` finds fields that begin with the text; without a star the text may be anywhere."""
    reader = StateReader(corpus("aggregation-changelog").files)
    assert {key.key["user"] for key in search(reader, "B").keys} == {"bob", "a name that is longer than sixteen bytes"}
    assert {key.key["user"] for key in search(reader, "B*").keys} == {"bob"}


def test_bounds_of_a_search(corpus: Corpus) -> None:
    """A search returns a limited number of keys and says that there are more; one that is stopped says how far it got."""
    reader = StateReader(corpus("aggregation-changelog").files)
    all_keys = search(reader, "2024")
    few = search(reader, "2024", most_keys=3)
    assert (len(few.keys), few.is_full, all_keys.is_full) == (3, True, False)
    assert {(one.label, one.batches) for one in few.keys} <= {(one.label, one.batches) for one in all_keys.keys}
    assert few.summary.startswith("more than 3 keys in batch 0 to 9 (2 partitions, ")
    stopped = search(reader, "2024", is_wanted=lambda: False)
    assert stopped.is_stopped and not stopped.keys
    assert "0 of 2 partitions" in stopped.summary


def test_keys_within_maps(corpus: Corpus) -> None:
    """A key within a map is found by its own fields and has the names of `history --key`."""
    reader = StateReader(corpus("custom-format2").files)
    kinds = [target.kind for target in reader.targets(reader.latest()) if target.kind != "hidden"]
    found = search(reader, "*", place=kinds.index("map"))
    assert found.keys
    assert all(any(name.startswith("user_map_key.") for name in key.key) for key in found.keys)


def test_search_on_the_command_line(corpus: Corpus) -> None:
    """`history --search` prints the keys and the batches that changed them, as a table or as JSON."""
    path = corpus("aggregation-changelog").path
    shown = run_here("history", path, "--search", "bob")
    assert shown.returncode == 0 and "CHANGED IN" in shown.stdout and "in batch 0 to 9" in shown.stderr
    lines = [json.loads(line) for line in run_here("history", path, "--search", "bob", "--json").stdout.splitlines()]
    assert lines and all(line["key"]["user"] == "bob" for line in lines)
    assert run_here("history", path).returncode == 2
