"""The corpus for tests: checkpoints that real Spark wrote, with the answers of Spark's own readers.

The fixture `corpus` returns one by name, with its files in memory. It unpacks them to a folder only when a test asks for
the path, once per session, so a test that changes files calls `load` with its own folder. `tests/corpus_maker` writes the
archives.
"""

from __future__ import annotations

import io
import json
import lzma
import marshal
import os
import struct
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from headwater.checkpoint.memory_tree import MemoryTree
from timemachine.crashing import TimestampedTree

FOLDER = Path(__file__).parent / "corpus"
CACHE = Path(__file__).parents[1] / ".pytest_cache" / "corpus"
STORES = ("hdfs", "rocksdb", "changelog", "format2")


@dataclass(frozen=True)
class StateAnswer:
    """What Spark's `statestore` source returned for one query as of one batch; `error` if it failed.

    `rows` are the parsed `to_json` lines in sorted order (times in milliseconds), `text` the lines themselves, and
    `precise_rows` the same with microseconds, for the checkpoints where that matters.
    """

    batch_id: int
    operator_id: int
    store_name: str | None
    join_side: str | None
    state_var: str | None
    timers: bool
    schema: dict[str, Any] | None
    text: tuple[str, ...]
    precise_text: tuple[str, ...]
    error: str | None

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text]

    @property
    def precise_rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.precise_text]

    @property
    def pairs(self) -> list[Any]:
        """The rows with every object as a list of (name, value), because two sums of one query have the same name."""
        return [json.loads(line, object_pairs_hook=list) for line in self.text]

    @property
    def question(self) -> str:
        """A short name of the query, for test ids and messages."""
        asked = self.state_var or self.join_side or ("timers" if self.timers else self.store_name)
        return f"operator {self.operator_id} {asked} at batch {self.batch_id}"


@dataclass(frozen=True)
class CorpusCheckpoint:
    """One checkpoint and what is known about it."""

    name: str
    home: Path
    about: dict[str, Any]
    answers: tuple[StateAnswer, ...]
    metadata: tuple[dict[str, Any], ...]
    progress: tuple[dict[str, Any], ...]
    emitted: dict[int, list[dict[str, Any]]]

    @cached_property
    def path(self) -> Path:
        """The checkpoint's folder, which is unpacked on first use."""
        _unpack(self.name, self.home)
        return self.home / "checkpoint"

    @property
    def files(self) -> TimestampedTree:
        """The checkpoint's files in memory, with their modification times."""
        held = _checkpoint_files(self.name)
        times = {path: int(modified * 1000) for path, (_, modified) in held.items()}
        return TimestampedTree({path: data for path, (data, _) in held.items()}, times)

    @property
    def description(self) -> str:
        return str(self.about["description"])

    @property
    def spark_version(self) -> str:
        return str(self.about["spark_version"])

    @property
    def location(self) -> str:
        """Where the checkpoint was when Spark wrote it: absolute paths inside it begin with the folder above."""
        return f"{self.about['location']}/checkpoint"

    @property
    def input(self) -> Path:
        """The folder with one folder of input files for each file source."""
        return self.path.with_name("input")

    @property
    def sink(self) -> Path:
        """The file sink's folder, for the checkpoints that have one."""
        return self.path.with_name("sink")

    def answers_at(self, batch_id: int) -> list[StateAnswer]:
        return [answer for answer in self.answers if answer.batch_id == batch_id]


def corpus_names(prefix: str = "") -> list[str]:
    """Return the sorted names of all checkpoints that begin with `prefix`."""
    found = (archive.name.removesuffix(".tar.xz") for archive in FOLDER.glob("*.tar.xz"))
    return sorted(name for name in found if name.startswith(prefix))


def sampled(names: Iterable[str], every: int = 1) -> list[Any]:
    """Return the names as parameters of a test: each operator and variation once, on other stores and Sparks as slow.

    Those that Spark 4.2 wrote and those of the other Sparks count separately. Stores and Sparks take turns, so that each
    is covered about as often as the others. ``every`` takes only every so many of the operators and variations, for
    tests that take long.
    """
    names, kinds = sorted(names), dict[str, list[tuple[str, str, str]]]()
    for name in names:
        spark, operator = name.split("-", 1) if name.startswith("spark") else ("", name)
        kind, _, store = operator.rpartition("-")
        if store not in STORES:
            kind, store = operator, ""
        kinds.setdefault(f"{bool(spark)} {kind}", []).append((name, store, spark))
    used: Counter[str] = Counter()
    chosen = set()
    for same_kind in kinds.values():
        name, store, spark = min(same_kind, key=lambda one: used[one[1]] + 2 * used[one[2]])
        used.update((store, spark))
        chosen.add(name)
    often = set(sorted(chosen)[::every])
    return [pytest.param(name, marks=() if name in often else pytest.mark.slow) for name in names]


def load(name: str, into: Path) -> CorpusCheckpoint:
    """Unpack a checkpoint below `into`, with its files' times, and read what is known about it."""
    found = _described(name, into / name)
    assert found.path.is_dir()
    return found


def as_memory_files(name: str) -> MemoryTree:
    """Return a new in-memory copy of a checkpoint's files, with paths relative to the checkpoint."""
    return MemoryTree({path: data for path, (data, _) in _checkpoint_files(name).items()})


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CorpusCheckpoint]:
    """`corpus(name)`: a checkpoint that is unpacked at most once per session and must not be modified."""
    return cache(lambda name: _described(name, tmp_path_factory.mktemp("corpus") / name))


def _described(name: str, home: Path) -> CorpusCheckpoint:
    notes = {
        part: json.loads(_members(name)[f"{part}.json"][0])
        for part in ("case", "answers", "metadata", "progress", "emitted")
    }
    return CorpusCheckpoint(
        name=name,
        home=home,
        about=notes["case"],
        answers=tuple(_answer(raw) for raw in notes["answers"]),
        metadata=tuple(notes["metadata"]),
        progress=tuple(notes["progress"]),
        emitted={batch["batch_id"]: [json.loads(row) for row in batch["rows"]] for batch in notes["emitted"]},
    )


def _unpack(name: str, home: Path) -> None:
    """Write the files of an archive. tarfile's own extraction takes most of its time to check paths, which are known."""
    home.mkdir(parents=True, exist_ok=True)
    for path, (data, modified) in _members(name).items():
        target = home / path
        if data is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.write_bytes(data)
            os.utime(target, (modified, modified))


def _checkpoint_files(name: str) -> dict[str, tuple[bytes, float]]:
    return {
        path.removeprefix("checkpoint/"): (data, modified)
        for path, (data, modified) in _members(name).items()
        if data is not None and path.startswith("checkpoint/")
    }


@cache
def _members(name: str) -> dict[str, tuple[bytes | None, float]]:
    """Return the contents and times of an archive's files, and its folders, by path in the order of the archive.

    They are cached in a form that is loaded twenty times as fast, for the other process and for the next run.
    """
    archive = FOLDER / f"{name}.tar.xz"
    known = archive.stat()
    cached = CACHE / f"{name}-{known.st_size}-{known.st_mtime_ns}"
    with suppress(OSError, EOFError, ValueError, TypeError):
        loaded: dict[str, tuple[bytes | None, float]] = marshal.loads(cached.read_bytes())
        return loaded
    found: dict[str, tuple[bytes | None, float]] = {}
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress(archive.read_bytes()))) as tar:
        for member in tar:
            held = tar.extractfile(member)
            found[member.name] = (held.read() if held else None, member.mtime)
    CACHE.mkdir(parents=True, exist_ok=True)
    draft = cached.with_name(f".{cached.name}-{os.getpid()}")
    draft.write_bytes(marshal.dumps(found))
    draft.replace(cached)
    return found


def _answer(raw: dict[str, Any]) -> StateAnswer:
    return StateAnswer(
        batch_id=raw["batch_id"],
        operator_id=raw["operator_id"],
        store_name=raw["store_name"],
        join_side=raw["join_side"],
        state_var=raw["state_var"],
        timers=raw["timers"],
        schema=raw.get("schema"),
        text=tuple(raw.get("rows", ())),
        precise_text=tuple(raw.get("precise_rows", ())),
        error=raw.get("error"),
    )


def crc_file(data: bytes, chunk: int = 512) -> bytes:
    """Return what Hadoop writes next to a file: the CRC-32 of each chunk."""
    sums = [zlib.crc32(data[start : start + chunk]) for start in range(0, len(data), chunk)]
    return struct.pack(f">4sI{len(sums)}I", b"crc\0", chunk, *sums)
