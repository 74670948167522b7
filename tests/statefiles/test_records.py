"""Records of state files, and the rows that are live after them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles import scan
from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.live_rows import hash_keys, live_rows, live_rows_by_part
from headwater.statefiles.records import Records, concat_ranked, parse_changelog, parse_plain, ranked
from headwater.statefiles.refusals import UnknownFormat
from statefiles.encoding import Operation, plain_records, typed_records

PATH = "state/0/0/1.changelog"

keys = st.binary(min_size=0, max_size=20)
values = st.binary(max_size=12)
puts_and_deletes = st.lists(st.tuples(st.sampled_from(["put", "delete"]), keys, values), max_size=30)
# Few keys, so that they repeat.
few = st.sampled_from([b"a", b"b", b"ab", b"a much longer key than the others", b"c"])
anything = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "merge"]), few, st.binary(min_size=1, max_size=4)), max_size=25
)


def model(operations: Sequence[Operation]) -> dict[bytes, list[bytes]]:
    """Apply operations one after another to a dictionary."""
    live: dict[bytes, list[bytes]] = {}
    for name, key, value in operations:
        if name == "put":
            live[key] = [value]
        elif name == "merge":
            live.setdefault(key, []).append(value)
        elif name == "delete":
            live.pop(key, None)
        else:
            live = {held: held_values for held, held_values in live.items() if not key <= held < value}
    return live


def contents(parts: list[Records]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for part in parts:
        for number in range(len(part)):
            found.setdefault(part.key(number), []).append(part.value(number))
    return found


def plain(operations: Sequence[Operation]) -> Records:
    return parse_plain(ByteSpace(plain_records(operations)), PATH)


def typed(operations: Sequence[Operation]) -> Records:
    return parse_changelog(ByteSpace(typed_records(operations)), PATH)


@settings(max_examples=100, deadline=None)
@given(puts_and_deletes)
def test_last_write_wins(operations: list[Operation]) -> None:
    """After puts and deletes, the live rows are what a dictionary would contain."""
    assert contents([live_rows(plain(operations))]) == model(operations)


@settings(max_examples=150, deadline=None)
@given(st.lists(anything, max_size=4))
def test_merges_are_kept_in_order(files: list[list[Operation]]) -> None:
    """Merges into a list follow the value that was put, in the order of files and records."""
    records = concat_ranked([typed(operations) for operations in files])
    assert contents([live_rows(records)]) == model([operation for operations in files for operation in operations])


@settings(max_examples=50, deadline=None)
@given(st.lists(anything, max_size=4))
def test_keys_with_equal_hashes_are_distinguished(files: list[list[Operation]]) -> None:
    """If all keys have the same hash, the live rows are the same, in the same order."""
    records = concat_ranked([typed(operations) for operations in files])
    expected = live_rows(records)
    with patch(
        "headwater.statefiles.live_rows.hash_keys", lambda space, start, length: np.zeros(len(start), np.uint64)
    ):
        found = live_rows(records)
    assert [(found.key(n), found.value(n)) for n in range(len(found))] == [
        (expected.key(n), expected.value(n)) for n in range(len(expected))
    ]


@settings(max_examples=100, deadline=None)
@given(anything, few, few, anything)
def test_ranges_are_deleted(before: list[Operation], first: bytes, end: bytes, after: list[Operation]) -> None:
    """A range deletion removes every older key from its first key up to its end key, and no later record."""
    operations = [*before, ("delete range", first, end), *after]
    assert contents([live_rows(typed(operations))]) == model(operations)


def test_parts_that_are_not_copied_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files that are not copied into one buffer have the same live rows as small ones that are."""
    base: list[Operation] = [("put", b"key %d" % number, b"old") for number in range(500)]
    change: list[Operation] = [
        ("delete", b"key 7", b""),
        ("put", b"key 9", b"new"),
        ("put", b"key 9", b"newer"),
        ("put", b"fresh", b"x"),
        ("delete", b"never there", b""),
    ]
    monkeypatch.setattr("headwater.statefiles.live_rows._COPIED_AT_MOST", 100)
    parts = live_rows_by_part(ranked([[plain(base)], [plain(change)]]))
    assert len(parts) == 2
    assert contents(parts) == model([*base, *change])


@settings(max_examples=50, deadline=None)
@given(st.lists(keys, min_size=1, max_size=10), st.lists(st.binary(max_size=90), max_size=4))
def test_a_hash_depends_on_the_key_alone(wanted: list[bytes], others: list[bytes]) -> None:
    """The hash of a key does not depend on the keys beside it."""
    alone = plain([("put", key, b"") for key in wanted])
    among = plain([("put", key, b"") for key in [*others, *wanted]])
    first = hash_keys(alone.keys, alone.key_start, alone.key_length)
    second = hash_keys(among.keys, among.key_start, among.key_length)
    assert np.array_equal(first, second[len(others) :])


@pytest.mark.parametrize("typed_file", [False, True])
def test_long_files_are_scanned_in_parallel(typed_file: bool) -> None:
    """The parallel scan finds exactly the records that the sequential scan finds."""
    random = np.random.default_rng(7)
    operations: list[Operation] = [
        (
            "delete" if random.random() < 0.1 else "put",
            random.bytes(int(random.integers(8, 40))),
            random.bytes(int(random.integers(0, 60))),
        )
        for _ in range(30_000)
    ]
    data = typed_records(operations) if typed_file else plain_records(operations)
    space, begin, head = ByteSpace(data), 4 if typed_file else 0, int(typed_file)
    expected, end, _ = scan._scan_sequentially(space, begin, PATH, head=head)
    probed, after, _ = scan._scan_sequentially(space, begin, PATH, head=head, limit=1000)
    found = scan._scan_in_parallel(space, np.array(probed), after, PATH, head=head)
    assert [*probed, *found.starts.tolist()] == expected
    assert (found.stopped_at, found.ended) == (end, True)


def test_a_wrong_guess_is_detected() -> None:
    """Values that contain what looks like records do not mislead the scan: the guesses fail verification."""
    inner = plain_records([("put", b"k" * 12, b"v" * 12)] * 40)[:-4]
    data = plain_records([("put", b"k" * 12, b"v" * 12)] * 1500 + [("put", b"outer", inner)] * 700)
    space = ByteSpace(data)
    assert space.size > scan._PARALLEL_FROM_BYTES
    assert len(scan.record_starts(space, 0, PATH, typed=False)) == 2200


@pytest.mark.parametrize("version", [3, 4])
def test_lineage_precedes_the_records(version: int) -> None:
    """Changelogs of checkpoint format 2 begin with their lineage; the rest is as in the older versions."""
    lineage = json.dumps([{"version": 4, "checkpointUniqueId": "abc"}]).encode()
    body = plain_records([("put", b"k", b"v")]) if version == 3 else typed_records([("put", b"k", b"v")])[4:]
    data = b"\0\x02v%d" % version + struct.pack(">H", len(lineage)) + lineage + body
    assert contents([parse_changelog(ByteSpace(data), PATH)]) == {b"k": [b"v"]}


def test_a_newer_changelog_is_refused() -> None:
    """An unknown version is left to Spark's reader."""
    with pytest.raises(UnknownFormat, match="version 7"):
        parse_changelog(ByteSpace(b"\0\x02v7" + bytes(40)), PATH)


@pytest.mark.parametrize("cut", [1, 3, 5, 9])
def test_a_truncated_file_is_refused(cut: int) -> None:
    """A file without its end mark is refused by name instead of being read as complete."""
    data = plain_records([("put", b"key", b"value")] * 5)
    with pytest.raises(CheckpointUnreadable, match=r"1\.changelog"):
        parse_plain(ByteSpace(data[:-cut]), PATH)
