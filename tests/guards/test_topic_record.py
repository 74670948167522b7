"""The ids of topics in a checkpoint."""

from __future__ import annotations

import pytest

from headwater.checkpoint.memory_tree import MemoryTree
from headwater.guards.topic_record import TOPICS_FILE, current_ids, read_topics, record_topics, recreated_since


def test_ids_are_recorded_once() -> None:
    """A topic gets an entry for each id that it has had; an unchanged one is not written again."""
    files = MemoryTree({})
    record_topics(files, {"visits": "one"}, 0)
    before = files.read(TOPICS_FILE)
    record_topics(files, {"visits": "one"}, 7)
    assert files.read(TOPICS_FILE) == before
    record_topics(files, {"visits": "two", "clicks": "three"}, 9)
    recorded = read_topics(files)
    assert current_ids(recorded, 8) == {"visits": "one"}
    assert current_ids(recorded, 9) == {"visits": "two", "clicks": "three"}
    assert recreated_since(recorded, 3) == {"visits": 9}
    assert recreated_since(recorded, 9) == {}


def test_a_rewound_batch_replaces_its_entries() -> None:
    """After a rewind, a batch may read a topic of another id than before."""
    files = MemoryTree({})
    record_topics(files, {"visits": "one"}, 0)
    record_topics(files, {"visits": "two"}, 9)
    record_topics(files, {"visits": "three"}, 5)
    assert current_ids(read_topics(files), 20) == {"visits": "three"}
    assert recreated_since(read_topics(files), 0) == {"visits": 5}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"topics": [1]}', b'{"topics": [{"topic": 1, "topic_id": 2, "since_batch": 3}]}']
)
def test_an_unreadable_record(data: bytes) -> None:
    """A record that is corrupt counts as none."""
    assert read_topics(MemoryTree({TOPICS_FILE: data})) == ()
