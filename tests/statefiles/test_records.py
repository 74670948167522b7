"""Records of state files, and what stands after them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles import scan
from headwater.statefiles.buffers import ByteSpace
from headwater.statefiles.latest import hash_keys, surviving, surviving_parts
from headwater.statefiles.records import Records, one_after_another, parse_changelog, parse_plain, ranked
from headwater.statefiles.refusals import FormatUnknown
from statefiles.encoding import Operation, plain_records, typed_records

PATH = "state/0/0/1.changelog"

keys = st.binary(min_size=0, max_size=20)
values = st.binary(max_size=12)
puts_and_deletes = st.lists(st.tuples(st.sampled_from(["put", "delete"]), keys, values), max_size=30)
# Few keys, so that they meet again.
few = st.sampled_from([b"a", b"b", b"ab", b"a much longer key than the others", b"c"])
anything = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "merge"]), few, st.binary(min_size=1, max_size=4)), max_size=25
)


def model(operations: Sequence[Operation]) -> dict[bytes, list[bytes]]:
    """What stands, told one operation after another."""
    standing: dict[bytes, list[bytes]] = {}
    for name, key, value in operations:
        if name == "put":
            standing[key] = [value]
        elif name == "merge":
            standing.setdefault(key, []).append(value)
        elif name == "delete":
            standing.pop(key, None)
        else:
            standing = {held: held_values for held, held_values in standing.items() if not key <= held < value}
    return standing


def standing(parts: list[Records]) -> dict[bytes, list[bytes]]:
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
    """After puts and deletes, what stands is what a dictionary would hold."""
    assert standing([surviving(plain(operations))]) == model(operations)


@settings(max_examples=150, deadline=None)
@given(st.lists(anything, max_size=4))
def test_lists_grow_in_their_order(files: list[list[Operation]]) -> None:
    """Additions to a list stand after what was put, in the order in which files and records have them."""
    whole = one_after_another([typed(operations) for operations in files])
    assert standing([surviving(whole)]) == model([operation for operations in files for operation in operations])


@settings(max_examples=100, deadline=None)
@given(anything, few, few, anything)
def test_ranges_are_deleted(before: list[Operation], first: bytes, end: bytes, after: list[Operation]) -> None:
    """A range deletion takes every older key from its first to before its end, and none that comes later."""
    operations = [*before, ("delete range", first, end), *after]
    assert standing([surviving(typed(operations))]) == model(operations)


def test_parts_stay_apart_and_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large files that are not copied together give the same as small ones that are."""
    base: list[Operation] = [("put", b"key %d" % number, b"old") for number in range(500)]
    change: list[Operation] = [
        ("delete", b"key 7", b""),
        ("put", b"key 9", b"new"),
        ("put", b"key 9", b"newer"),
        ("put", b"fresh", b"x"),
        ("delete", b"never there", b""),
    ]
    monkeypatch.setattr("headwater.statefiles.latest._SMALL", 100)
    parts = surviving_parts(ranked([[plain(base)], [plain(change)]]))
    assert len(parts) == 2
    assert standing(parts) == model([*base, *change])


@settings(max_examples=50, deadline=None)
@given(st.lists(keys, min_size=1, max_size=10), st.lists(st.binary(max_size=90), max_size=4))
def test_a_hash_depends_on_the_key_alone(wanted: list[bytes], others: list[bytes]) -> None:
    """The same key has the same hash whatever keys stand beside it."""
    alone = plain([("put", key, b"") for key in wanted])
    among = plain([("put", key, b"") for key in [*others, *wanted]])
    first = hash_keys(alone.keys, alone.key_start, alone.key_length)
    second = hash_keys(among.keys, among.key_start, among.key_length)
    assert np.array_equal(first, second[len(others) :])


@pytest.mark.parametrize("typed_file", [False, True])
def test_long_files_are_followed_side_by_side(typed_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches followed at once find exactly the records that are found one by one."""
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
    side_by_side = scan._side_by_side(space, begin, PATH, head=head)
    assert side_by_side is not None
    assert side_by_side.tolist() == scan._one_by_one(space, begin, PATH, head=head)


def test_a_wrong_guess_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values full of what looks like records do not lead astray: the guesses fail their proof."""
    inner = plain_records([("put", b"k" * 12, b"v" * 12)] * 40)[:-4]
    data = plain_records([("put", b"k" * 12, b"v" * 12)] * 1500 + [("put", b"outer", inner)] * 700)
    space = ByteSpace(data)
    assert space.size > scan._SMALL
    assert len(scan.record_starts(space, 0, PATH, typed=False)) == 2200


@pytest.mark.parametrize("version", [3, 4])
def test_lineage_stands_before_the_records(version: int) -> None:
    """Changelogs of checkpoint format 2 name their forebears and then go on as the older versions do."""
    lineage = json.dumps([{"version": 4, "checkpointUniqueId": "abc"}]).encode()
    body = plain_records([("put", b"k", b"v")]) if version == 3 else typed_records([("put", b"k", b"v")])[4:]
    data = b"\0\x02v%d" % version + struct.pack(">H", len(lineage)) + lineage + body
    assert standing([parse_changelog(ByteSpace(data), PATH)]) == {b"k": [b"v"]}


def test_a_newer_changelog_is_refused() -> None:
    """A version that is not known is left to Spark."""
    with pytest.raises(FormatUnknown, match="version 7"):
        parse_changelog(ByteSpace(b"\0\x02v7" + bytes(40)), PATH)


@pytest.mark.parametrize("cut", [1, 3, 5, 9])
def test_a_torn_file_is_refused(cut: int) -> None:
    """A file without its end mark is refused by name, and not read as if it were whole."""
    data = plain_records([("put", b"key", b"value")] * 5)
    with pytest.raises(CheckpointUnreadable, match=r"1\.changelog"):
        parse_plain(ByteSpace(data[:-cut]), PATH)
