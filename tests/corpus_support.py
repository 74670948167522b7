"""The corpus for tests: checkpoints that real Spark wrote, with the answers of Spark's own readers.

`load(name, into)` unpacks one. The fixture `corpus` unpacks each once per session and returns the same folder again, so a
test that changes files calls `load` with its own folder. `tests/corpus_maker` writes the archives.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest

from headwater.checkpoint.memory_tree import MemoryTree

FOLDER = Path(__file__).parent / "corpus"


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
    """One unpacked checkpoint and what is known about it."""

    name: str
    path: Path
    about: dict[str, Any]
    answers: tuple[StateAnswer, ...]
    metadata: tuple[dict[str, Any], ...]
    progress: tuple[dict[str, Any], ...]
    emitted: dict[int, list[dict[str, Any]]]

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


def load(name: str, into: Path) -> CorpusCheckpoint:
    """Unpack a checkpoint below `into`, with its files' times, and read what is known about it."""
    home = into / name
    with tarfile.open(fileobj=io.BytesIO(_unpacked(name))) as tar:
        tar.extractall(home, filter="tar")
    notes = {
        part: json.loads((home / f"{part}.json").read_text("utf-8"))
        for part in ("case", "answers", "metadata", "progress", "emitted")
    }
    return CorpusCheckpoint(
        name=name,
        path=home / "checkpoint",
        about=notes["case"],
        answers=tuple(_answer(raw) for raw in notes["answers"]),
        metadata=tuple(notes["metadata"]),
        progress=tuple(notes["progress"]),
        emitted={batch["batch_id"]: [json.loads(row) for row in batch["rows"]] for batch in notes["emitted"]},
    )


def as_memory_files(name: str) -> MemoryTree:
    """Return a new in-memory copy of a checkpoint's files, with paths relative to the checkpoint."""
    contents: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(_unpacked(name))) as tar:
        for member in tar:
            if member.isfile() and member.name.startswith("checkpoint/"):
                held = tar.extractfile(member)
                assert held is not None
                contents[member.name.removeprefix("checkpoint/")] = held.read()
    return MemoryTree(contents)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CorpusCheckpoint]:
    """`corpus(name)`: a checkpoint that is unpacked once per session and must not be modified."""

    @cache
    def loaded(name: str) -> CorpusCheckpoint:
        return load(name, tmp_path_factory.mktemp("corpus"))

    return loaded


@lru_cache(maxsize=8)
def _unpacked(name: str) -> bytes:
    import lzma

    return lzma.decompress((FOLDER / f"{name}.tar.xz").read_bytes())


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
