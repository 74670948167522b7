"""Checkpoints on S3: Spark writes through s3a, Headwater reads the same objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import CorpusCheckpoint
from headwater.checkpoint.filetree import FileTree, walk
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_files
from headwater.checkpoint.object_tree import BLOCK_BYTES, ObjectTree
from s3_support import BUCKET, S3, WrittenBySpark

UPLOADED = ("custom-changelog", "aggregation-format2", "kafka-hdfs")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process."""
    return Command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def local_copy(s3: S3, s3_checkpoint: WrittenBySpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark wrote to S3, downloaded by an independent client."""
    return s3.download(s3_checkpoint.prefix, tmp_path_factory.mktemp("downloaded"))


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_reads_every_object_that_spark_wrote(s3: S3, s3_checkpoint: WrittenBySpark, scheme: str) -> None:
    """With either scheme, the walk finds each object once and reads its contents."""
    files = open_files(s3.url(s3_checkpoint.prefix, scheme))
    expected = set(s3.objects(s3_checkpoint.prefix))
    assert {path: files.read(path) for path, _ in walk(files)} == {
        path: s3.read(s3_checkpoint.prefix, path) for path in expected
    }
    assert {name for name in expected if name.startswith("offsets/")} >= {
        "offsets/0",
        "offsets/1",
        "offsets/2",
        "offsets/3",
    }


def test_tree_and_walk_agree(s3: S3, s3_checkpoint: WrittenBySpark) -> None:
    """``tree`` and ``walk`` find the same files in the state folder."""
    files = open_files(s3.url(s3_checkpoint.prefix))
    listed = {f"{folder}/{name}" for folder, held in files.tree("state").items() for name in held}
    assert listed == {path for path, _ in walk(files, "state")}


@pytest.mark.parametrize(
    "verb", [("log",), ("show", "HEAD"), ("show", "0"), ("fsck",), ("state",), ("state", "--at", "1")]
)
def test_commands_print_the_same_for_s3_and_a_local_copy(
    command: Command, s3: S3, s3_checkpoint: WrittenBySpark, local_copy: Path, verb: tuple[str, ...]
) -> None:
    """log, show, fsck and state print the same lines for the URL and for a local copy."""
    remote = command(verb[0], s3.url(s3_checkpoint.prefix), *verb[1:], "--json")
    local = command(verb[0], local_copy, *verb[1:], "--json")
    assert (remote.status, remote.err) == (0, local.err)
    assert remote.out == local.out
    assert remote.out or verb == ("fsck",)


def test_fsck_checks_a_file_sink_on_s3(command: Command, s3: S3, s3_checkpoint: WrittenBySpark) -> None:
    """The sink matches the checkpoint as Spark left it, and a missing entry of the sink's log is found."""
    url, sink = s3.url(s3_checkpoint.prefix), f"files:{s3.url(s3_checkpoint.sink_prefix, 's3a')}"
    assert command("fsck", url, "--sink", sink, "--strict", "--json").status == 0
    removed = max((path for path in s3.objects(f"{s3_checkpoint.sink_prefix}/_spark_metadata")), key=int)
    held = s3.read(f"{s3_checkpoint.sink_prefix}/_spark_metadata", removed)
    key = f"{s3_checkpoint.sink_prefix}/_spark_metadata/{removed}"
    s3.client.delete_object(Bucket=BUCKET, Key=key)
    try:
        found = command("fsck", url, "--sink", sink, "--json")
        assert (found.status, json.loads(found.out.splitlines()[0])["code"]) == (1, "sink-behind")
    finally:
        s3.client.put_object(Bucket=BUCKET, Key=key, Body=held)


def test_a_rewind_on_s3_is_planned_as_on_a_local_copy(
    command: Command, s3: S3, s3_checkpoint: WrittenBySpark, local_copy: Path
) -> None:
    """A dry run lists the same files for the URL as for the folder, and moves none of them."""
    before = s3.objects(s3_checkpoint.prefix)
    remote = command("rewind", s3.url(s3_checkpoint.prefix), "--to", "1", "--dry-run", "--json")
    local = command("rewind", local_copy, "--to", "1", "--dry-run", "--json")
    assert (remote.status, local.status) == (0, 0), remote.err + local.err
    planned, expected = json.loads(remote.out), json.loads(local.out)
    assert planned["set_aside"]
    assert {key: planned[key] for key in ("to", "next_batch", "set_aside", "rewritten")} == {
        key: expected[key] for key in ("to", "next_batch", "set_aside", "rewritten")
    }
    assert s3.objects(s3_checkpoint.prefix) == before


def test_state_on_s3_is_what_spark_reads_there(command: Command, s3: S3, s3_checkpoint: WrittenBySpark) -> None:
    """As of the first and the last batch, the rows are those of Spark's own state reader."""
    assert sorted(s3_checkpoint.answers) == [0, 3]
    for batch, lines in s3_checkpoint.answers.items():
        ran = command("state", s3.url(s3_checkpoint.prefix, "s3a"), "--at", batch, "--json")
        found = [json.loads(line) for line in ran.out.splitlines()]
        expected = [json.loads(line) for line in lines]
        assert _by_key(found) == _by_key(expected)


@pytest.mark.parametrize("name", UPLOADED)
def test_a_checkpoint_that_was_copied_to_s3_reads_as_it_did_locally(
    command: Command, s3: S3, corpus: Callable[[str], CorpusCheckpoint], name: str, tmp_path: Path
) -> None:
    """Checkpoints in other formats, including their checksum files, have the same log and state on S3."""
    s3.upload(corpus(name).path, name)
    local = s3.download(name, tmp_path)
    for verb in ("log", "state"):
        remote = command(verb, s3.url(name), "--json")
        assert remote.status == 0
        assert remote.out == command(verb, local, "--json").out


@pytest.mark.parametrize("prefix", ["changes", "changes[12]"])
def test_changes_are_seen_by_other_clients(s3: S3, prefix: str) -> None:
    """Other clients see what is written, appended, copied, moved and removed, and nothing else has changed."""
    ObjectTree(s3.url("changes1")).write("aside/offsets/1", b"of another checkpoint")
    files = ObjectTree(s3.url(prefix))
    files.write("offsets/0", b"v1")
    files.write("offsets/0", b"v1\nagain")
    files.append("offsets/0", b"\n-")
    files.copy("offsets/0", "offsets/1")
    files.move("offsets/1", "aside/offsets/1")
    files.write("commits/0", b"v1")
    assert sorted(s3.objects(prefix)) == ["aside/offsets/1", "commits/0", "offsets/0"]
    assert s3.read(prefix, "aside/offsets/1") == b"v1\nagain\n-"
    files.remove("commits/0")
    files.remove_folder("aside")
    files.remove_folder("never/was")
    assert sorted(s3.objects(prefix)) == ["offsets/0"]
    assert s3.read("changes1", "aside/offsets/1") == b"of another checkpoint"
    assert not files.exists("aside")
    assert files.exists("offsets")
    with pytest.raises(FileNotFoundError):
        files.read("commits/0")


def test_large_object_is_read_in_blocks(s3: S3) -> None:
    """An object larger than a block comes in several."""
    files = ObjectTree(s3.url("large"))
    data = bytes(range(256)) * (BLOCK_BYTES // 256) + b"end"
    files.write("state/1.zip", data)
    blocks = list(files.read_blocks("state/1.zip"))
    assert [len(block) for block in blocks] == [BLOCK_BYTES, 3]
    assert b"".join(blocks) == data
    with pytest.raises(FileNotFoundError):
        list(files.read_blocks("state/2.zip"))


@pytest.mark.parametrize("way", ["up", "down"])
def test_local_and_remote_trees_share_by_copies(s3: S3, way: str, tmp_path: Path) -> None:
    """A file is shared between a folder and a bucket by a copy."""
    trees: list[FileTree] = [LocalTree(tmp_path), ObjectTree(s3.url(f"shared-{way}"))]
    origin, into = trees if way == "up" else reversed(trees)
    origin.write("state/1.delta", b"x")
    origin.share("state/1.delta", into)
    assert into.read("state/1.delta") == b"x"


def test_listings_are_not_cached(s3: S3) -> None:
    """An object that Spark writes after the first listing is in the second."""
    files = ObjectTree(s3.url("fresh"))
    files.write("offsets/0", b"v1")
    assert [entry.name for entry in files.entries("offsets")] == ["0"]
    s3.client.put_object(Bucket=BUCKET, Key="fresh/offsets/1", Body=b"v1")
    assert [entry.name for entry in files.entries("offsets")] == ["0", "1"]


@pytest.mark.parametrize("url", ["s3://no-such-bucket/checkpoint", "s3://headwater-tests/no/such/checkpoint"])
def test_missing_location_is_a_headwater_error(command: Command, s3: S3, url: str) -> None:
    """A wrong URL is an error without a traceback."""
    ran = command("log", url)
    assert ran.status >= 10
    assert url in ran.err
    assert "Traceback" not in ran.err


def _by_key(rows: list[dict[str, object]]) -> list[str]:
    return sorted(json.dumps([row["partition_id"], row["key"], row["value"]], sort_keys=True) for row in rows)


@pytest.mark.slow
def test_a_restore_point_on_s3(command: Command, s3: S3, corpus: Callable[[str], CorpusCheckpoint]) -> None:
    """A point is a copy that survives the loss of the batch; a rewind to it and its undo work as on a disk."""
    url = s3.upload(corpus("aggregation-format2").path, "kept-case") and s3.url("kept-case")
    state = command("state", url, "--at", 4, "--json").out
    made = json.loads(command("keep", url, "early", "--at", 4, "--json").out)
    assert (made["batch_id"], made["shared_bytes"]) == (4, 0)
    assert made["own_bytes"] > 0
    files = ObjectTree(url)
    for number in range(5):
        files.remove(f"offsets/{number}")
        files.remove(f"commits/{number}")
    assert command("state", url, "--at", "early", "--json").out == state
    before = {path: s3.read("kept-case", path) for path in s3.objects("kept-case") if "_headwater" not in path}
    rewound = command("rewind", url, "--to", "early", "--yes", "--allow-missing-input")
    assert rewound.status == 0, rewound.err
    assert command("state", url, "--json").out == state
    assert [json.loads(line)["name"] for line in command("kept", url, "--json").out.splitlines()] == ["early"]
    assert command("undo", url, "--yes").status == 0
    assert before == {path: s3.read("kept-case", path) for path in s3.objects("kept-case") if "_headwater" not in path}
    assert command("keep", url, "--drop", "early").status == 0
    assert not [path for path in s3.objects("kept-case") if "/kept/" in path]
