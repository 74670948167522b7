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
from headwater.statefiles.buffers import LOW_BYTES, PADDING, ByteSpace, Ints
from headwater.statefiles.records import DELETE, MERGE, PUT, Records, no_records
from headwater.statefiles.refusals import corrupt_state, unknown_format
from headwater.statefiles.sst_file import SEQUENCE_BYTES, TableFile, restarts, varints

if TYPE_CHECKING:
    import numpy.typing as npt

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
    steps = []
    run = np.arange(len(at))
    while len(run):
        shared, size = varints(space, at)
        key_at = at + size
        unshared, size = varints(space, key_at)
        key_at = key_at + size
        length, size = varints(space, key_at)
        key_at = key_at + size
        value_at = key_at + unshared
        steps.append((run, shared, unshared, key_at, value_at, length))
        at = value_at + length
        if (at > run_ends).any():
            raise corrupt_state(path, "has an entry that extends beyond its block")
        going = at < run_ends
        run, at, run_ends = run[going], at[going], run_ends[going]
    runs, shared, unshared, key_at, value_at, length = (np.concatenate(column) for column in zip(*steps, strict=True))
    del steps
    key_length = shared + unshared
    keys, stride = _complete_keys(space, runs, shared, key_at, key_length, path)
    # A step has one entry of every run; sorting by run restores the order of the keys.
    order = np.argsort(runs, kind="stable")
    key_start = order * stride
    trailer = keys.gather("<u8", key_start + key_length[order] - SEQUENCE_BYTES)
    return Records(
        keys,
        space,
        _operations(trailer, path),
        key_start,
        key_length[order] - SEQUENCE_BYTES,
        value_at[order],
        length[order],
        (trailer >> np.uint64(8)).astype(np.int64),
    )


def _complete_keys(
    space: ByteSpace, runs: Ints, shared: Ints, key_at: Ints, key_length: Ints, path: str
) -> tuple[ByteSpace, int]:
    """Return keys completed with the part that they share with the previous key, in rows of equal width."""
    words = int(key_length.max()) // 8 + 1
    if len(runs) * words * 8 > 8 * int(key_length.sum()) + (64 << 20):
        raise unknown_format(path, "has keys of very different lengths")
    data = np.zeros(len(runs) * words + PADDING // 8, "<u8")
    table = data[: len(runs) * words].reshape(len(runs), words)
    current = np.zeros((words, int(runs.max()) + 1), "<u8")
    step_ends = np.append(np.flatnonzero(np.diff(runs) <= 0) + 1, len(runs))
    begin = 0
    for end in step_ends.tolist():
        active, same, source = runs[begin:end], shared[begin:end], key_at[begin:end]
        # While every run continues, entire columns are replaced, which is much faster than chosen positions in them.
        chosen = slice(None) if end - begin == current.shape[1] else active
        for word in range(int(same.min()) // 8, int(key_length[begin:end].max() + 7) // 8):
            kept = same - 8 * word
            # For arrays as short as these, np.clip takes ten times as long.
            fresh = space.gather("<u8", np.minimum(np.maximum(source - kept, 0), space.size))
            if (kept > 0).any():
                mask = LOW_BYTES[np.minimum(np.maximum(kept, 0), 8)]
                fresh = (current[word, chosen] & mask) | (fresh & ~mask)
            current[word, chosen] = fresh
        table[begin:end] = current[:, chosen].T
        begin = end
    return ByteSpace(data.view(np.uint8), padded=True), words * 8


def _operations(trailer: npt.NDArray[np.uint64], path: str) -> npt.NDArray[np.uint8]:
    kinds = (trailer & np.uint64(0xFF)).astype(np.uint8)
    known = np.zeros(256, np.uint8)
    for kind, operation in _OPERATIONS.items():
        known[kind] = operation
    operations = known[kinds]
    if (operations == 0).any():
        raise unknown_format(path, f"has entries of unknown type {int(kinds[operations == 0][0])}")
    return operations
