"""The entries of RocksDB's data blocks, decoded column by column.

An entry is ``shared, unshared, value length`` (varints), the part of the key that differs from the previous key, and the
value. About every sixteenth key is complete; the end of the block lists the positions of these restarts. All runs
between restarts are decoded in parallel, one entry of each run per step. A key ends with eight bytes: its sequence
number and the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headwater.checkpoint.filetree import FileTree
from headwater.statefiles.buffers import LOW_BYTES, PADDING, ByteSpace, Ints, Mask, offsets_of
from headwater.statefiles.records import DELETE, MERGE, PUT, Records, no_records
from headwater.statefiles.refusals import corrupt_state, unknown_format
from headwater.statefiles.sst_file import SEQUENCE_BYTES, TableFile, restarts, varints

if TYPE_CHECKING:
    import numpy.typing as npt

# The bits that three numbers have set if they take more than one byte each.
_ANY_LONGER = 0x808080
# For keys of at most so many words, the masks for all lengths of a shared part fit into a processor's cache.
_MASKED_WORDS = 32
_OPERATIONS = {0: DELETE, 1: PUT, 2: MERGE, 7: DELETE}


def read_tables(files: FileTree, paths: Sequence[str], only: Sequence[bytes] | None = None) -> list[Records]:
    """Return every operation in some tables of one database, table by table, ranked by sequence number.

    With ``only`` (sorted keys), read just the blocks that can contain them; other keys of those blocks are included.
    """
    tables = [TableFile(files, path) for path in paths]
    return [read_blocks(table, None if only is None else table.blocks_with(only)) for table in tables]


def read_blocks(table: TableFile, blocks: Ints | slice | None = None) -> Records:
    """Return the operations in some data blocks of a table, in the order of their keys; by default in all blocks."""
    return _entries(*table.read_blocks(slice(None) if blocks is None else blocks), table.path)


def _entries(space: ByteSpace, starts: Ints, ends: Ints, path: str) -> Records:
    if not len(starts):
        return no_records()
    at, run_ends = restarts(space, starts, ends, path)
    steps, continued = [], []
    run = np.arange(len(at))
    while len(run):
        shared, unshared, length, key_at = _entry_headers(space, at)
        value_at = key_at + unshared
        steps.append((run, shared, unshared, key_at, value_at, length))
        at = value_at + length
        if (at > run_ends).any():
            raise corrupt_state(path, "has an entry that extends beyond its block")
        going = at < run_ends
        continued.append(going)
        if not going.all():
            run, at, run_ends = run[going], at[going], run_ends[going]
    # A step has one entry of every run that continues. In the order of the keys, the entries of a run are adjacent.
    runs, *columns = (np.concatenate(column) for column in zip(*steps, strict=True))
    del steps
    place = offsets_of(np.bincount(runs))[runs] + np.repeat(np.arange(len(continued)), list(map(len, continued)))
    order = np.empty(len(place), np.int64)
    order[place] = np.arange(len(place))
    shared, unshared, key_at, value_at, length = columns
    key_length = shared + unshared
    keys, stride = _complete_keys(space, continued, place, shared, key_at, key_length, path)
    key_length = _ordered(key_length, order) - SEQUENCE_BYTES
    key_start = np.arange(0, len(order) * stride, stride)
    trailer = keys.gather("<u8", key_start + key_length)
    return Records(
        keys,
        space,
        _operations(trailer, path),
        key_start,
        key_length,
        value_at[order],
        _ordered(length, order),
        (trailer >> np.uint64(8)).astype(np.int64),
    )


def _ordered(column: Ints, order: Ints) -> Ints:
    """Return a column in another order, which makes no difference if all its numbers are equal."""
    return column if column.min() == column.max() else column[order]


def _entry_headers(space: ByteSpace, at: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the three numbers with which entries begin, and where their keys begin."""
    word = space.gather("<i4", at).astype(np.int64)
    if not (np.bitwise_or.reduce(word) & _ANY_LONGER):
        return word & 0xFF, (word >> 8) & 0xFF, (word >> 16) & 0xFF, at + 3
    shared, size = varints(space, at)
    at = at + size
    unshared, size = varints(space, at)
    at = at + size
    length, size = varints(space, at)
    return shared, unshared, length, at + size


def _complete_keys(
    space: ByteSpace, continued: list[Mask], place: Ints, shared: Ints, key_at: Ints, key_length: Ints, path: str
) -> tuple[ByteSpace, int]:
    """Return keys completed with the part that they share with the previous key, each at its place, in equal rows.

    ``continued`` tells for each step which of its entries have a successor in the next step.
    """
    words = int(key_length.max()) // 8 + 1
    if len(place) * words * 8 > 8 * int(key_length.sum()) + (64 << 20):
        raise unknown_format(path, "has keys of very different lengths")
    data = np.empty(len(place) * words + PADDING // 8, "<u8")
    data[len(place) * words :] = 0
    # As one value per row, rows are copied to their places in half the time.
    row = f"V{8 * words}"
    table = data[: len(place) * words].view(row)
    # A row begins before the part that is stored, at the place that the shared part would have in front of it.
    source = np.maximum(key_at - shared, 0)
    masks = _kept_bytes(np.arange(8 * words + 1), words) if words <= _MASKED_WORDS else None
    begin, previous = 0, np.zeros((0, words), "<u8")
    for going in continued:
        end = begin + len(going)
        rows = space.rows(source[begin:end], 8 * words).view("<u8")
        if begin:
            same = shared[begin:end]
            kept = _kept_bytes(same, words) if masks is None else masks.take(same, axis=0)
            rows ^= (rows ^ previous) & kept
        table[place[begin:end]] = rows.view(row)[:, 0]
        begin, previous = end, rows if going.all() else rows[going]
    return ByteSpace(data.view(np.uint8), padded=True), words * 8


def _kept_bytes(count: Ints, words: int) -> npt.NDArray[np.uint64]:
    """Return masks of rows of which the first bytes, so many, come from the previous key."""
    kept: npt.NDArray[np.uint64] = LOW_BYTES[np.minimum(np.maximum(count[:, None] - 8 * np.arange(words), 0), 8)]
    return kept


def _operations(trailer: npt.NDArray[np.uint64], path: str) -> npt.NDArray[np.uint8]:
    kinds = (trailer & np.uint64(0xFF)).astype(np.uint8)
    known = np.zeros(256, np.uint8)
    for kind, operation in _OPERATIONS.items():
        known[kind] = operation
    operations = known[kinds]
    if (operations == 0).any():
        raise unknown_format(path, f"has entries of unknown type {int(kinds[operations == 0][0])}")
    return operations
