"""Every check finds its kind of damage, and finds nothing in what Spark wrote."""

from __future__ import annotations

import json
import random
import re
import shlex
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from corpus_support import CorpusCheckpoint, as_memory_files, corpus_names, crc_file, sampled
from headwater.checkpoint.checks import (
    hadoop_crc,
    run_checks,
    sink_log,
    source_logs,
    spark_checksums,
    temporary_files,
    uncommitted_batches,
)
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.local_tree import BLOCK_BYTES, LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import sink_of
from headwater.core.finding import Finding
from headwater.timemachine.tables import fsck

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "fsck.md"
PACKAGE = Path(__file__).parents[3] / "src" / "headwater"
CHECKS = PACKAGE / "checkpoint"

# Findings that an intact checkpoint can have.
HARMLESS = {"format-1", "sst-orphan", "uncommitted", "temporary-file", "source-log-ahead", "offsets-gap", "commits-gap"}
YEAR_2100_MS = 4_102_444_800_000


def findings(files: MemoryTree, sink: LocalTree | None = None) -> list[Finding]:
    return list(run_checks(CheckContext(files, now_ms=YEAR_2100_MS, sink=sink)))


def serious(files: MemoryTree) -> set[tuple[str, str, str]]:
    return {(found.severity, found.code, found.path) for found in findings(files) if found.severity != "info"}


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_what_spark_wrote_is_intact(name: str, corpus) -> None:
    """A checkpoint as Spark left it has no errors and no warnings."""
    checkpoint: CorpusCheckpoint = corpus(name)
    found = list(run_checks(CheckContext(checkpoint.files, now_ms=YEAR_2100_MS)))
    assert [one for one in found if one.severity != "info"] == []
    assert {one.code for one in found} <= HARMLESS


def edited(name: str, path: str, change: Callable[[bytes], bytes]) -> MemoryTree:
    """Return a corpus checkpoint with one file changed and its crc removed, so that only the change is found."""
    files = as_memory_files(name)
    files.write(path, change(files.read(path)))
    folder, _, base = path.rpartition("/")
    files.contents.pop(f"{folder}/.{base}.crc" if folder else f".{base}.crc", None)
    return files


def removed(name: str, *paths: str) -> MemoryTree:
    """Return a corpus checkpoint without some files and their crc files."""
    files = as_memory_files(name)
    for path in paths:
        folder, _, base = path.rpartition("/")
        files.remove(path)
        files.contents.pop(f"{folder}/.{base}.crc", None)
        files.contents.pop(f"{path}.crc", None)
        files.contents.pop(f"{folder}/.{base}.crc.crc", None)
    return files


def with_watermark(data: bytes, watermark_ms: int) -> bytes:
    return re.sub(rb'atchWatermarkMs":\d+', b'atchWatermarkMs":%d' % watermark_ms, data)


LAST = 9  # the last batch of the corpus checkpoints used below

DAMAGE: dict[str, tuple[Callable[[], MemoryTree], str, str, str]] = {
    "gap at the end of offsets": (
        lambda: removed("aggregation-hdfs", f"offsets/{LAST - 1}"),
        "error",
        "offsets-gap",
        f"offsets/{LAST - 1}",
    ),
    "gap in offsets": (lambda: removed("aggregation-hdfs", "offsets/3"), "warning", "offsets-gap", "offsets/3"),
    "gap in commits": (lambda: removed("aggregation-hdfs", "commits/3"), "warning", "commits-gap", "commits/3"),
    "two files for a batch": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"offsets/05": b"v1\n{}\n-"}),
        "error",
        "offsets-duplicate",
        "offsets/05",
    ),
    "two uncommitted batches": (
        lambda: removed("aggregation-hdfs", f"commits/{LAST}", f"commits/{LAST - 1}"),
        "error",
        "several-uncommitted",
        f"offsets/{LAST}",
    ),
    "empty offsets": (
        lambda: edited("aggregation-hdfs", "offsets/4", lambda _: b""),
        "error",
        "empty-file",
        "offsets/4",
    ),
    "truncated offsets": (
        lambda: edited("aggregation-hdfs", "offsets/4", lambda data: data[:60]),
        "error",
        "torn-file",
        "offsets/4",
    ),
    "zeroed commit": (
        lambda: edited("aggregation-hdfs", "commits/4", lambda data: b"\0" * len(data)),
        "error",
        "torn-file",
        "commits/4",
    ),
    "bad version": (
        lambda: edited("aggregation-hdfs", "commits/4", lambda data: b"w" + data[1:]),
        "error",
        "bad-version",
        "commits/4",
    ),
    "newer version": (
        lambda: edited("aggregation-hdfs", "commits/4", lambda data: b"v7" + data[2:]),
        "error",
        "newer-version",
        "commits/4",
    ),
    "bad JSON": (
        lambda: edited("aggregation-hdfs", "offsets/4", lambda data: data.replace(b'":', b'"=', 1)),
        "error",
        "bad-json",
        "offsets/4",
    ),
    "not text": (
        lambda: edited("aggregation-hdfs", "offsets/4", lambda data: data[:5] + b"\xff" + data[6:]),
        "error",
        "not-text",
        "offsets/4",
    ),
    "no query id": (lambda: removed("aggregation-hdfs", "metadata"), "error", "metadata-missing", "metadata"),
    "truncated query id": (
        lambda: edited("aggregation-hdfs", "metadata", lambda data: data[:9]),
        "error",
        "torn-file",
        "metadata",
    ),
    "truncated source log": (
        lambda: edited("aggregation-hdfs", "sources/0/2.compact", lambda data: data[:-20]),
        "error",
        "torn-file",
        "sources/0/2.compact",
    ),
    "truncated operator metadata": (
        lambda: edited("aggregation-hdfs", "state/0/_metadata/metadata", lambda data: data[:-5]),
        "error",
        "torn-file",
        "state/0/_metadata/metadata",
    ),
    "empty state file": (
        lambda: edited("aggregation-hdfs", "state/0/0/3.delta", lambda _: b""),
        "error",
        "empty-file",
        "state/0/0/3.delta",
    ),
    "commit without offsets": (
        lambda: removed("aggregation-hdfs", f"offsets/{LAST}"),
        "error",
        "commit-without-offsets",
        f"commits/{LAST}",
    ),
    "offsets that go backward": (
        lambda: edited(
            "aggregation-hdfs", "offsets/2", lambda data: re.sub(rb'logOffset":\d+', b'logOffset":99', data)
        ),
        "error",
        "offsets-backwards",
        "offsets/3",
    ),
    "source that lost its offset": (
        lambda: edited("aggregation-hdfs", "offsets/5", lambda data: data.rpartition(b"\n")[0] + b"\n-"),
        "error",
        "offsets-backwards",
        "offsets/5",
    ),
    "different number of sources": (
        lambda: edited("aggregation-hdfs", "offsets/5", lambda data: data + b"\n3"),
        "warning",
        "sources-changed",
        "offsets/5",
    ),
    "watermark that goes backward": (
        lambda: edited("aggregation-hdfs", f"offsets/{LAST}", lambda data: with_watermark(data, 5)),
        "error",
        "watermark-backwards",
        f"offsets/{LAST}",
    ),
    "source log behind": (
        lambda: removed("aggregation-hdfs", "sources/0/4"),
        "error",
        "source-log-behind",
        "sources/0",
    ),
    "gap in the source log": (
        lambda: removed("aggregation-hdfs", "sources/0/3"),
        "error",
        "source-log-gap",
        "sources/0/3",
    ),
    "source log ahead": (
        lambda: removed(
            "aggregation-hdfs", *(f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(4, 10))
        ),
        "warning",
        "source-log-ahead",
        "sources/0",
    ),
    "missing state": (
        lambda: removed("aggregation-rocksdb", f"state/0/1/{LAST + 1}.zip"),
        "error",
        "state-missing",
        "state/0/1",
    ),
    "missing older state": (
        lambda: removed("aggregation-rocksdb", "state/0/1/4.zip"),
        "warning",
        "state-hole",
        "state/0/1",
    ),
    "missing partition": (
        lambda: _without_folder("aggregation-hdfs", "state/0/1"),
        "error",
        "partition-count",
        "state/0",
    ),
    "extra partition": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"state/0/2/1.delta": b"x"}),
        "warning",
        "partition-count",
        "state/0",
    ),
    "stale snapshot": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"state/0/0/20.snapshot": b"x"}),
        "error",
        "state-ahead",
        "state/0/0",
    ),
    "stale change": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"state/0/0/20.delta": b"x"}),
        "warning",
        "state-ahead",
        "state/0/0",
    ),
    "corrupt zip": (
        lambda: edited("aggregation-rocksdb", "state/0/0/5.zip", lambda data: data[: len(data) // 2]),
        "error",
        "bad-zip",
        "state/0/0/5.zip",
    ),
    "partially written file": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"offsets/.9.0a1b.tmp": b"v1"}),
        "warning",
        "temporary-file",
        "offsets/.9.0a1b.tmp",
    ),
    "interrupted change": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"_headwater/pending.json": b"{}"}),
        "error",
        "interrupted-operation",
        "_headwater/pending.json",
    ),
    "corrupt job record": (
        lambda: MemoryTree(as_memory_files("aggregation-hdfs").contents | {"_headwater/job.json": b"{"}),
        "warning",
        "torn-file",
        "_headwater/job.json",
    ),
}


def _without_folder(name: str, folder: str) -> MemoryTree:
    files = as_memory_files(name)
    files.remove_folder(folder)
    return files


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(damage: str) -> None:
    """Each kind of damage is one finding with its code, severity, path and a message."""
    make, severity, code, path = DAMAGE[damage]
    found = [one for one in findings(make()) if (one.severity, one.code, one.path) == (severity, code, path)]
    assert len(found) == 1
    assert len(found[0].message.split()) >= 2


def test_changed_byte_is_found_by_its_crc() -> None:
    """A flipped bit in a state file does not match its crc file."""
    files = as_memory_files("aggregation-hdfs")
    data = bytearray(files.read("state/0/0/4.delta"))
    data[len(data) // 2] ^= 1
    files.write("state/0/0/4.delta", bytes(data))
    assert serious(files) == {("error", "crc-mismatch", "state/0/0/4.delta")}


@pytest.mark.parametrize("cut", [0, 3, 9])
def test_truncated_crc_file(cut: int) -> None:
    """A truncated crc file is a mismatch."""
    files = as_memory_files("aggregation-hdfs")
    files.write("state/0/0/.4.delta.crc", files.read("state/0/0/.4.delta.crc")[:cut])
    assert serious(files) == {("error", "crc-mismatch", "state/0/0/4.delta")}


def test_leftover_crc_can_be_repaired() -> None:
    """A crc file without its file prevents Spark from starting if it is in a log, and can be removed anywhere."""
    files = as_memory_files("aggregation-hdfs")
    files.write("offsets/.55.crc", b"crc\0\0\0\2\0")
    files.write("state/0/0/.55.delta.crc", b"crc\0\0\0\2\0")
    found = [one for one in findings(files) if one.code == "stale-crc"]
    assert [(one.severity, one.path, one.repairable) for one in found] == [
        ("error", "offsets/.55.crc", True),
        ("warning", "state/0/0/.55.delta.crc", True),
    ]


def test_format_2_checksums() -> None:
    """Format 2's own checksums find a changed byte and a different size without Hadoop's crc files."""
    files = as_memory_files("aggregation-format2")
    for path in [path for path in files.contents if path.rpartition("/")[2].startswith(".")]:
        files.remove(path)
    changelogs = sorted(path for path in files.contents if path.endswith(".changelog"))
    flipped, cut, lost = changelogs[0], changelogs[1], changelogs[2]
    data = bytearray(files.read(flipped))
    data[-1] ^= 4
    files.write(flipped, bytes(data))
    files.write(cut, files.read(cut)[:-1])
    files.remove(lost)
    found = {(one.code, one.path) for one in findings(files) if "checksum" in one.code}
    assert found == {("checksum-mismatch", flipped), ("checksum-mismatch", cut), ("stale-checksum", f"{lost}.crc")}


@pytest.mark.parametrize("flipped", [None, 0, 2 * BLOCK_BYTES + 17])
def test_format_2_checksum_of_a_large_file(flipped: int | None, tmp_path: Path) -> None:
    """The checksum of a file of several blocks is verified, and a flipped bit anywhere in it is found."""
    data = bytearray(random.Random(1).randbytes(5 * BLOCK_BYTES // 2))
    expected = google_crc32c.value(bytes(data))
    if flipped is not None:
        data[flipped] ^= 1
    files = LocalTree(tmp_path)
    files.write("state/0/0/1_a.changelog", bytes(data))
    # Java's numbers are signed.
    about = {"algorithm": "CRC32C", "value": expected - 2**32, "mainFileSize": len(data)}
    files.write("state/0/0/1_a.changelog.crc", json.dumps(about).encode())
    found = [one.path for one in spark_checksums.check(CheckContext(files, now_ms=0))]
    assert found == ([] if flipped is None else ["state/0/0/1_a.changelog"])


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 4096])
@pytest.mark.parametrize("chunk", [1, 8, 13, 10_000])
@pytest.mark.parametrize("block", [1, 8, 20, 10_000])
def test_hadoop_checksums_do_not_depend_on_blocks(size: int, chunk: int, block: int) -> None:
    """A file is verified by chunks, in whatever blocks it is read."""
    data = random.Random(size).randbytes(size)
    sums = crc_file(data, chunk)
    assert hadoop_crc.mismatch(blocks_of(data, block), sums) is None
    if size:
        changed = data[:-1] + bytes([data[-1] ^ 1])
        start = (size - 1) // chunk * chunk
        assert hadoop_crc.mismatch(blocks_of(changed, block), sums) == f"the contents differ starting at byte {start}"
    longer = data + bytes(chunk)
    assert "a different size" in (hadoop_crc.mismatch(blocks_of(longer, block), sums) or "")


def blocks_of(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def test_format_2_file_that_the_commit_does_not_name() -> None:
    """A state file with another id does not replace the one that the commit names."""
    files = as_memory_files("aggregation-format2")
    newest = [path for path in files.contents if re.fullmatch(rf"state/0/0/{LAST + 1}_[^.]+\.(zip|changelog)", path)]
    assert newest
    for path in newest:
        files.move(path, re.sub(r"_[^.]+", "_0000", path))
    found = [one for one in findings(files) if one.code == "state-missing"]
    assert [one.path for one in found] == ["state/0/0"]
    assert "that the commit names" in found[0].message


def test_missing_and_orphaned_sst() -> None:
    """A snapshot whose SST is missing or has another size is an error; an SST without a snapshot is only reported."""
    files = as_memory_files("aggregation-rocksdb")
    ssts = sorted(path for path in files.contents if re.fullmatch(r"state/0/0/SSTs/[^.].*\.sst", path))
    lost, cut = ssts[0], ssts[1]
    files.remove(lost)
    files.write(cut, files.read(cut)[:-1])
    files.write("state/0/0/SSTs/000099-x.sst", b"x")
    found = findings(files)
    missing = [one for one in found if one.code == "sst-missing"]
    assert missing and all(lost.rpartition("/")[2] in one.message and one.severity == "error" for one in missing)
    assert {one.path for one in found if one.code == "sst-size"} == {cut}
    assert ("info", "state/0/0/SSTs/000099-x.sst") in {
        (one.severity, one.path) for one in found if one.code == "sst-orphan"
    }


def test_torn_upload_of_an_sst() -> None:
    """An SST that a killed job left half uploaded is an error only if a snapshot uses it."""
    files = as_memory_files("aggregation-rocksdb")
    files.write("state/0/0/SSTs/000099-x.sst", b"")
    files.write("state/0/0/SSTs/.000099-x.sst.crc", b"")
    assert serious(files) == set()
    assert {one.code for one in findings(files) if one.path.endswith("000099-x.sst")} == {"crc-mismatch", "sst-orphan"}
    used = min(path for path in files.contents if re.fullmatch(r"state/0/0/SSTs/[^.].*\.sst", path))
    folder, _, name = used.rpartition("/")
    files.write(f"{folder}/.{name}.crc", b"")
    assert serious(files) == {("error", "crc-mismatch", used)}


def test_missing_schema_of_custom_state() -> None:
    """The schema files that the metadata of custom state refers to must exist."""
    files = as_memory_files("custom-changelog")
    schemas = [path for path in files.contents if re.search(r"/_stateSchema/[^/]+/[^.]", path)]
    assert schemas
    for path in schemas:
        files.remove(path)
    assert {one.path for one in findings(files) if one.code == "schema-missing"} == set(schemas)


def test_fresh_temporary_file_is_left_alone() -> None:
    """A recent temporary file may belong to a running query and is not repairable."""
    files = MemoryTree(as_memory_files("aggregation-hdfs").contents | {"offsets/.9.0a1b.tmp": b"v1"})
    found = [one for one in run_checks(CheckContext(files, now_ms=1000)) if one.code == "temporary-file"]
    assert [(one.severity, one.repairable) for one in found] == [("info", False)]


@pytest.fixture
def sink(tmp_path: Path) -> LocalTree:
    """The folder of a file sink that matches a checkpoint of ten batches, each of which added a file."""
    files = LocalTree(tmp_path / "out dir")
    for batch in range(10):
        files.write(f"part-{batch}", b"abc")
    for name in ("2.compact", "3", "4", "5.compact", "6", "7", "8.compact", "9"):
        number = int(name.removesuffix(".compact"))
        held = range(number + 1) if name.endswith(".compact") else [number]
        lines = [_added(f"{tmp_path.as_uri()}/out%20dir/part-{batch}") for batch in held]
        files.write(f"_spark_metadata/{name}", "\n".join(["v1", *lines]).encode())
    return files


def _added(uri: str) -> str:
    return json.dumps({"path": uri, "size": 3, "action": "add"})


def sink_codes(sink: LocalTree) -> set[str]:
    return {one.code for one in findings(as_memory_files("aggregation-hdfs"), sink) if one.severity != "info"}


def test_matching_sink(sink: LocalTree) -> None:
    """A sink whose log ends with the last commit and has no gaps, and whose files all exist, has no findings."""
    assert sink_codes(sink) == set()


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("_spark_metadata/10", b"v1", "sink-ahead"),
        ("_spark_metadata/9", None, "sink-behind"),
        ("_spark_metadata/8.compact", None, "sink-gap"),
        ("_spark_metadata/9", b"v1\n{", "torn-file"),
        ("_spark_metadata/9", f"v1\n{_added('file:///elsewhere/part-9')}".encode(), "sink-elsewhere"),
        ("_spark_metadata/9", f"v1\n{_added('file://[invalid')}".encode(), "sink-elsewhere"),
        ("part-4", None, "sink-file-missing"),
        ("part-4", b"abcd", "sink-file-size"),
        ("_spark_metadata", None, "sink-log-missing"),
    ],
)
def test_mismatching_sink(sink: LocalTree, path: str, data: bytes | None, code: str) -> None:
    """A sink's log that is ahead, behind, incomplete or truncated, or whose files are missing, is an error."""
    if data is not None:
        sink.write(path, data)
    elif path == "_spark_metadata":
        sink.remove_folder(path)
    else:
        sink.remove(path)
    assert sink_codes(sink) == {code}


@pytest.mark.parametrize("name", ["kafka-to-files", "sink-compacted"])
def test_sinks_that_spark_wrote(name: str, corpus) -> None:
    """A real sink matches its checkpoint; that it was moved is a warning."""
    checkpoint: CorpusCheckpoint = corpus(name)
    context = CheckContext(open_files(str(checkpoint.path)), now_ms=YEAR_2100_MS, sink=open_files(str(checkpoint.sink)))
    assert [(one.severity, one.code) for one in run_checks(context) if one.code not in HARMLESS] == [
        ("warning", "sink-elsewhere")
    ]


def test_limit_and_total_need_one_partition_only() -> None:
    """An operator that Spark never distributes has one partition whatever the configuration."""
    files = _without_folder("aggregation-hdfs", "state/0/1")
    assert "partition-count" in {one.code for one in findings(files)}
    metadata = files.read("state/0/_metadata/metadata")
    files.write("state/0/_metadata/metadata", re.sub(rb'operatorName":"[^"]+', b'operatorName":"globalLimit', metadata))
    assert "partition-count" not in {one.code for one in findings(files)}


def once_listed(files: FileTree, folder: str, happens: Callable[[], object], *, time: int = 1) -> None:
    """Let something happen just before a folder is listed for the first time, or for the second or third one."""
    remaining = [happens] * time

    def before(listing: Callable[[str], Any]) -> Callable[[str], Any]:
        def listed(inner: str) -> Any:
            if inner == folder and remaining:
                happens = remaining.pop()
                if not remaining:
                    happens()
            return listing(inner)

        return listed

    for method in ("entries", "tree"):
        setattr(files, method, before(getattr(files, method)))


def running(name: str, *paths: str) -> tuple[MemoryTree, Callable[[], None]]:
    """Return a corpus checkpoint without some files, and what adds them as the running query does."""
    files = removed(name, *paths)
    rest = {path: data for path, data in as_memory_files(name).contents.items() if path not in files.contents}
    return files, lambda: files.contents.update(rest)


def logs_of(*batches: int) -> list[str]:
    return [f"{log}/{batch}" for log in ("offsets", "commits") for batch in batches]


def test_batches_that_a_running_query_finishes_during_the_checks() -> None:
    """State files and source logs that are listed after the offsets may be of newer batches."""
    files, finish = running("aggregation-hdfs", *logs_of(*range(4, 10)))
    assert {code for _, code, _ in serious(files)} == {"source-log-ahead", "state-ahead"}
    once_listed(files, "", finish)
    assert serious(files) == set()


def test_source_log_of_a_query_that_reads_on() -> None:
    """The offsets may become newer than the listing of the source's log."""
    files, finish = running("aggregation-hdfs", *logs_of(*range(1, 10)), "sources/0/3", "sources/0/4")
    once_listed(files, "offsets", finish, time=2)
    assert [one.code for one in source_logs.check(CheckContext(files, now_ms=0))] == []


def test_commit_whose_offsets_were_listed_before() -> None:
    """A batch that is planned and committed after the offsets were listed has its offsets."""
    files, finish = running("aggregation-hdfs", *logs_of(8, 9))
    once_listed(files, "commits", finish)
    assert [one for one in findings(files) if one.code in ("commit-without-offsets", "offsets-gap")] == []


def test_batches_that_are_committed_after_the_commits_were_listed() -> None:
    """Batches are uncommitted only if no newer listing of the commits has them."""
    files, finish = running("aggregation-hdfs", *logs_of(7, 8, 9))
    once_listed(files, "offsets", finish)
    assert list(uncommitted_batches.check(CheckContext(files, now_ms=0))) == []


def test_old_batches_that_a_running_query_removes() -> None:
    """A file that was listed and has been removed since is not missing; one that is still listed is."""
    files = as_memory_files("aggregation-hdfs")
    context = CheckContext(files, now_ms=YEAR_2100_MS)
    assert context.logs.offsets.ids[0] == 0
    files.remove("offsets/0")
    assert "missing-file" not in {one.code for one in run_checks(context)}


def test_draft_that_a_running_query_renames() -> None:
    """A temporary file that no longer exists is not reported."""
    files = MemoryTree(as_memory_files("aggregation-hdfs").contents | {"offsets/.9.0a1b.tmp": b"v1"})
    context = CheckContext(files, now_ms=YEAR_2100_MS)
    assert "offsets" in context.tree
    files.remove("offsets/.9.0a1b.tmp")
    assert list(temporary_files.check(context)) == []


@pytest.mark.parametrize("hidden", [logs_of(9), ["commits/9"]])
def test_batch_that_reaches_the_sink_during_the_checks(sink: LocalTree, hidden: list[str]) -> None:
    """The sink's log, which is listed after the checkpoint's, may have a batch that was planned and committed since."""
    files, finish = running("aggregation-format2", *hidden)
    expected = "sink-ahead" if len(hidden) > 1 else "batch-stuck"
    assert expected in {one.code for one in sink_log.check(CheckContext(files, 0, sink))}
    context = CheckContext(files, 0, sink)
    assert context.last_planned is not None and context.last_committed is not None
    finish()
    assert list(sink_log.check(context)) == []


def test_findings_on_a_running_query_are_confirmed() -> None:
    """If batches were added during the checks, only what a second run finds too is reported."""
    files, finish = running("aggregation-hdfs", "state/0/1/10.delta", *logs_of(9))
    files.contents |= {path: as_memory_files("aggregation-hdfs").contents[path] for path in logs_of(9)}
    assert serious_of(fsck(files)) == {("error", "state-missing", "state/0/1")}
    files.remove("commits/3")
    files.contents.pop("commits/.3.crc")

    def add_a_batch() -> None:
        finish()
        files.write("offsets/10", files.read("offsets/9"))

    once_listed(files, "offsets", add_a_batch, time=2)
    assert serious_of(fsck(files)) == {("warning", "commits-gap", "commits/3")}


def serious_of(found: list[Finding]) -> set[tuple[str, str, str]]:
    return {(one.severity, one.code, one.path) for one in found if one.severity != "info"}


def test_newest_offsets_alone() -> None:
    """Spark cannot start from the newest offsets alone, unless batches are skipped in both logs on purpose."""
    stateful = removed("aggregation-changelog", *(f"offsets/{batch}" for batch in range(LAST)))
    assert ("error", "offsets-gap", f"offsets/{LAST - 1}") in serious(stateful)
    stateless = removed("stateless", *logs_of(0, 1, 2, 3))
    assert serious(stateless) == {("warning", "offsets-gap", "offsets/3")}
    committed = removed("stateless", *(f"offsets/{batch}" for batch in range(4)))
    assert ("error", "offsets-gap", "offsets/3") in serious(committed)
    # The log of its source still lists the files of later batches.
    first = removed("stateless", *logs_of(1, 2, 3, 4))
    assert {code for _, code, _ in serious(first)} == {"source-log-ahead"}


@pytest.mark.parametrize("name", ["custom-changelog", "join4"])
def test_missing_metadata_of_an_operator(name: str) -> None:
    """An operator that has schema files of version 2 and no metadata is an error."""
    files = as_memory_files(name)
    files.remove_folder("state/0/_metadata/v2")
    assert ("error", "operator-metadata-missing", "state/0/_metadata/v2") in serious(files)
    # A file that exists and is corrupt is one finding, not two.
    files.write("state/0/_metadata/v2/0", b"v2\n{")
    assert {code for _, code, _ in serious(files)} == {"torn-file"}


@pytest.mark.parametrize(
    ("name", "store"), [("aggregation-hdfs", ""), ("session-format2", ""), ("join-hdfs", "left-keyToNumValues/")]
)
def test_missing_schema(name: str, store: str) -> None:
    """Each store of an operator with metadata of version 1 has a schema in its first partition."""
    path = f"state/0/0/{store}_metadata/schema"
    assert serious(removed(name, path)) == {("warning", "schema-missing", path)}


def test_source_log_of_a_table() -> None:
    """The log of a source that reads a table is parsed like that of a file source."""
    files = edited("stateless", "sources/0/4", lambda _: b"")
    files.write("_headwater/job.json", json.dumps({"job": "copies", "source": "table:events"}).encode())
    assert ("error", "empty-file", "sources/0/4") in serious(files)


@pytest.mark.parametrize("folder", ["out", "out dir/50%?"])
def test_stuck_batch_names_the_sink(tmp_path: Path, folder: str) -> None:
    """The command that helps names the sink only if it is not recorded."""
    sink = LocalTree(tmp_path / folder)
    sink.write("_spark_metadata/9.compact", b"v1")
    files = removed("aggregation-format2", "commits/9")
    (found,) = [one for one in findings(files, sink) if one.code == "batch-stuck"]
    *_, option, uri = shlex.split(found.message)
    assert option == "--sink"
    assert getattr(sink_of(files, uri), "root", None) == sink.root
    files.write("_headwater/job.json", json.dumps({"sink": uri}).encode())
    (found,) = [one for one in findings(files, sink) if one.code == "batch-stuck"]
    assert found.message.endswith("--redo 9")


def test_limit_of_spark_3() -> None:
    """A limit of Spark 3, whose operator has no metadata, is known by the type of its key."""
    files = _without_folder("spark3.5-aggregation-hdfs", "state/0/1")
    assert "partition-count" in {one.code for one in findings(files)}
    schemas = [
        {"type": "struct", "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}}]}
        for name, kind in (("key", "void"), ("value", "long"))
    ]
    files.write("state/0/0/_metadata/schema", schema_file(schemas))
    files.contents.pop("state/0/0/_metadata/.schema.crc")
    assert serious(files) == set()


def schema_file(schemas: list[dict[str, Any]]) -> bytes:
    """Return a schema file of version 2: texts with their lengths, those of the schemas in chunks."""
    texts = [json.dumps(schema, separators=(",", ":")).encode() for schema in schemas]
    utf = [struct.pack(">H", len(text)) + text for text in (b"v2", *texts)]
    return utf[0] + b"".join(struct.pack(">i", 1) + text for text in utf[1:])


def test_repartition_and_back() -> None:
    """Partitions that some batches did not use have no versions of these batches, which is not a hole."""
    files = as_memory_files("five-partitions")
    batches = [int(path.removeprefix("commits/")) for path in files.contents if re.fullmatch(r"commits/\d+", path)]
    middle = sorted(batches)[len(batches) // 2]
    for path in list(files.contents):
        if re.fullmatch(rf"state/0/[234]/\.?{middle + 1}\..*", path):
            files.remove(path)
    for partition in (2, 3, 4):  # a repartition writes all rows of the state
        files.write(f"state/0/{partition}/{middle + 2}.snapshot", b"x")
    assert {code for _, code, _ in serious(files)} == {"state-hole"}
    planned = files.read(f"offsets/{middle}")
    files.write(f"offsets/{middle}", planned.replace(b'partitions":"5"', b'partitions":"2"'))
    files.contents.pop(f"offsets/.{middle}.crc")
    assert serious(files) == set()


def test_interrupted_purge_with_asynchronous_progress_tracking() -> None:
    """A purge removes offsets first: commits from before the first offsets are no sign of missing offsets."""
    files = removed("kafka-async", "offsets/0")
    assert serious(files) == set()
    assert "commit-without-offsets" in {one.code for one in findings(files)}


@pytest.mark.parametrize(
    ("name", "advised"), [("aggregation-changelog", True), ("spark3.5-aggregation-changelog", False)]
)
def test_checkpoint_format_2_is_advised_where_spark_has_it(name: str, advised: bool) -> None:
    """Spark 3 has no checkpoint format 2."""
    (found,) = [one for one in findings(as_memory_files(name)) if one.code == "format-1"]
    assert ("--checkpoint-format 2" in found.message) == advised


def test_local_folder_with_an_unreadable_file(tmp_path: Path) -> None:
    """A folder instead of a file raises no exception."""
    files = LocalTree(tmp_path)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").mkdir()
    (tmp_path / "offsets" / "0").mkdir()
    (tmp_path / "commits").write_text("not a folder")
    assert list(run_checks(CheckContext(files, now_ms=0))) == []


def test_every_code_is_documented() -> None:
    """The reference explains exactly the codes that checks can report."""
    of_tables = [PACKAGE / "timemachine" / "tables.py", *(PACKAGE / "lakehouse").glob("*.py")]
    of_sources = (PACKAGE / "guards").glob("*.py")
    of_moves = PACKAGE / "checkpoint" / "moved.py"
    source = "\n".join(path.read_text() for path in (*CHECKS.rglob("*.py"), *of_tables, *of_sources, of_moves))
    given = set(re.findall(r'Finding\(\s*(?:"\w+"|"error" if [^,]+|severity)\s*,\s*"([a-z0-9-]+)"', source))
    given |= set(re.findall(r'unreadable_file\(\s*"([a-z0-9-]+)"', source))
    given |= {f"{log}-{what}" for log in ("offsets", "commits") for what in ("gap", "duplicate")}
    documented = set(re.findall(r"^\| `([a-z0-9-]+)` \|", DOCUMENT.read_text(), flags=re.MULTILINE))
    assert documented == given
