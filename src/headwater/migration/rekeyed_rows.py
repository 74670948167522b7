"""Rows of a store under new keys: they go to other partitions, and rows that end up with the same key are merged by a rule.

The rows of all partitions are sorted by partition and key in a database in a temporary folder, so that memory does not
grow with them.
"""

from __future__ import annotations

import re
import shutil
import struct
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby, islice
from typing import Any

import pyarrow as pa

from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.statefiles.buffers import Ints
from headwater.statefiles.stores import StateTarget

Columns = dict[str, dict[str, str]]
Merge = Callable[[pa.Table, Ints, Mapping[str, str], Columns], pa.Table]
"""Computes SQL aggregates, by name, for each group of rows of a table; groups are numbered from 0."""
_HEAD = struct.Struct(">II")
_NUMBER = struct.Struct(">Q")
_ROWS_AT_ONCE = 10_000
_DEDUPLICATIONS = ("dedupe", "dedupeWithinWatermark")
_FUNCTION = re.compile(r"\w+")


class RekeyedRows:
    """Encoded rows by the partition and the bytes of their new key. They are deleted with this object."""

    def __init__(self) -> None:
        self._count = 0

    @cached_property
    def _database(self) -> Any:
        from rocksdict import Options, Rdict  # noqa: PLC0415  rarely needed

        folder = tempfile.mkdtemp(prefix="headwater-keys-")
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        database = Rdict(f"{folder}/rows", options)
        weakref.finalize(self, _discard, database, folder)
        return database

    def add(self, rows: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Add rows: the partition, the key and the value of each."""
        from rocksdict import WriteBatch, WriteOptions  # noqa: PLC0415  rarely needed

        unlogged = WriteOptions()
        unlogged.disable_wal = True
        waiting = iter(rows)
        while some := list(islice(waiting, _ROWS_AT_ONCE)):
            batch = WriteBatch(raw_mode=True)
            for partition, key, value in some:
                # The length comes first, so that no other key lies between the rows of one key.
                batch.put(_HEAD.pack(partition, len(key)) + key + _NUMBER.pack(self._count), value)
                self._count += 1
            self._database.write(batch, unlogged)

    def groups(self, partition: int) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield each key of a partition with the values of its rows, in the order in which they were added."""
        rows = self._rows(partition)
        for key, found in groupby(rows, key=lambda row: row[0]):
            yield key, [value for _, value in found]

    def _rows(self, partition: int) -> Iterator[tuple[bytes, bytes]]:
        for stored, value in self._database.items(from_key=_HEAD.pack(partition, 0)) if self._count else ():
            if _HEAD.unpack_from(stored)[0] != partition:
                return
            yield stored[_HEAD.size : -_NUMBER.size], value


def _discard(database: Any, folder: str) -> None:
    database.close()
    shutil.rmtree(folder, ignore_errors=True)


def may_drop_equal_rows(target: StateTarget) -> bool:
    """Return whether rows with equal keys and values are one row: a key that was seen twice was seen."""
    return target.operator_name in _DEDUPLICATIONS


def merge_rules(rules: Mapping[str, str], fields: Iterable[str], copied: Iterable[str]) -> dict[str, str]:
    """Return an SQL aggregate for each field of the values that is not a copy of the key. Raise if one has no rule.

    A rule is an expression, or only the name of a function: ``sum`` is ``sum(field)``.
    """
    known, kept = list(fields), set(copied)
    for name in rules:
        if name not in known:
            raise UsageProblem(
                "no-such-field",
                f"no value of the new state has a field {name}",
                evidence={"fields": ", ".join(known)},
                remedy=f"--merge {known[0] if known else 'FIELD'}=sum",
            )
    without = [name for name in known if name not in rules and name not in kept]
    if without:
        raise ChangeRefused(
            "keys-collapse",
            f"several rows end up with the same key, and there is no rule for {', '.join(without)}",
            evidence={"fields": ", ".join(known)},
            remedy=" ".join(f"--merge {name}=sum" for name in without) + "   (or min, max, any SQL aggregate)",
        )
    return {
        name: f'{rules[name]}("{name}")' if _FUNCTION.fullmatch(rules[name]) else rules[name]
        for name in known
        if name in rules
    }
