"""The ids of the topics that a stream reads, recorded in its checkpoint: a recreated topic has the same name.

``_headwater/topics.json`` has an entry for each id that a topic has had, with the first batch that was read from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER

TOPICS_FILE = f"{HEADWATER_FOLDER}/topics.json"


@dataclass(frozen=True)
class RecordedTopic:
    """A topic by its id, and the first batch for which it was recorded."""

    topic: str
    topic_id: str
    since_batch: int


def read_topics(files: FileTree) -> tuple[RecordedTopic, ...]:
    """Return the recorded topics, oldest entries first; none if there is no record or it is unreadable."""
    try:
        values = json.loads(files.read(TOPICS_FILE))
        found = tuple(_parse(value) for value in values["topics"])
    except (OSError, ValueError, TypeError, KeyError):
        return ()
    return tuple(sorted(found, key=lambda entry: entry.since_batch))


def _parse(value: Any) -> RecordedTopic:
    entry = RecordedTopic(value["topic"], value["topic_id"], value["since_batch"])
    if (
        not isinstance(entry.topic, str)
        or not isinstance(entry.topic_id, str)
        or not isinstance(entry.since_batch, int)
    ):
        raise TypeError("not an entry of this version")
    return entry


def current_ids(recorded: tuple[RecordedTopic, ...], batch: int) -> dict[str, str]:
    """Return the id that each topic had when a batch was planned."""
    return {entry.topic: entry.topic_id for entry in recorded if entry.since_batch <= batch}


def recreated_since(recorded: tuple[RecordedTopic, ...], batch: int) -> dict[str, int]:
    """Return the topics whose id changed after a batch, with the first batch of their present id."""
    before = current_ids(recorded, batch)
    later = [entry for entry in recorded if entry.since_batch > batch]
    return {
        entry.topic: entry.since_batch for entry in later if before.get(entry.topic, entry.topic_id) != entry.topic_id
    }


def record_topics(files: FileTree, ids: Mapping[str, str], batch: int) -> None:
    """Record the ids that topics have since a batch, unless they are recorded. A rewound batch replaces its entries."""
    before = read_topics(files)
    kept = [entry for entry in before if entry.since_batch < batch or ids.get(entry.topic) == entry.topic_id]
    known = current_ids(tuple(kept), batch)
    added = [RecordedTopic(topic, found, batch) for topic, found in sorted(ids.items()) if known.get(topic) != found]
    entries = [*kept, *added]
    if tuple(entries) != before:
        files.write(TOPICS_FILE, json.dumps({"topics": [asdict(entry) for entry in entries]}, indent=1).encode())
