"""``headwater log``."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cli.running import Command
from corpus_support import corpus_names, load

KEYS = {"batch_id", "status", "planned_at", "committed_at", "watermark", "sources", "can_rewind_to", "why_not"}


@pytest.mark.parametrize("name", corpus_names())
def test_json_lines(name: str, command: Command, corpus) -> None:
    """Each batch is one JSON object with the promised fields, oldest first."""
    ran = command("log", corpus(name).path, "--json")
    assert (ran.status, ran.err) == (0, "")
    batches = [json.loads(line) for line in ran.out.splitlines()]
    assert batches
    assert [batch["batch_id"] for batch in batches] == sorted(batch["batch_id"] for batch in batches)
    for batch in batches:
        assert batch.keys() >= KEYS
        assert batch["status"] in ("committed", "planned")
        assert batch["can_rewind_to"] == (batch["why_not"] is None)
        assert batch["planned_at"].endswith("Z")
        for source in batch["sources"]:
            assert source.keys() >= {"kind", "start", "end", "rows"}


def test_table(command: Command, corpus) -> None:
    """The table has a heading and a line for each batch; -n takes the newest."""
    path = corpus("aggregation-hdfs").path
    lines = command("log", path).out.splitlines()
    assert lines[0].split() == [
        *(
            "BATCH",
            "STATUS",
            "PLANNED",
            "(UTC)",
            "TOOK",
            "ROWS",
            "READ",
            "WATERMARK",
            "(UTC)",
            "BEHIND",
            "STATE",
            "REWIND",
        )
    ]
    assert [line.split()[0] for line in lines[1:]] == [str(number) for number in range(10)]
    newest = command("log", path, "-n", "3").out.splitlines()
    assert [line.split()[0] for line in newest[1:]] == ["7", "8", "9"]
    assert newest[-1].endswith("yes")
    assert "files" in newest[-1]


def test_reason_is_in_the_table(command: Command, tmp_path: Path) -> None:
    """A batch that one cannot rewind to says why, and a store that is lost is counted."""
    path = load("aggregation-rocksdb", tmp_path).path
    (path / "state/0/1/4.zip").unlink()
    line = command("log", path).out.splitlines()[4]
    assert line.endswith("no: state version 4 of operator 0, store default, partition 1 cannot be rebuilt")
    assert " v4 1/2 " in line


def test_since(command: Command, corpus) -> None:
    """--since takes a time; after the last batch there is nothing, which is no error."""
    path = corpus("aggregation-hdfs").path
    every = [json.loads(line) for line in command("log", path, "--json").out.splitlines()]
    since = command("log", path, "--json", "--since", every[6]["planned_at"])
    assert [json.loads(line)["batch_id"] for line in since.out.splitlines()] == [6, 7, 8, 9]
    late = command("log", path, "--since", "2100-01-01T00:00:00Z")
    assert (late.status, late.out, late.err) == (0, "", "no batch since then\n")
    assert command("log", path, "--since", "noon").status == 2


def test_no_checkpoint(command: Command, tmp_path: Path) -> None:
    """A place without a checkpoint is refused with a message, and as JSON when JSON was asked for."""
    ran = command("log", tmp_path / "nothing")
    assert ran.status == 13
    assert ran.err.startswith("error[no-checkpoint]: ")
    assert "help: " in ran.err
    assert json.loads(command("log", tmp_path / "nothing", "--json").err)["error"] == "no-checkpoint"


def test_new_checkpoint(command: Command, tmp_path: Path) -> None:
    """A checkpoint without a batch is no error."""
    (tmp_path / "metadata").write_text('{"id":"x"}')
    ran = command("log", tmp_path)
    assert (ran.status, ran.out, ran.err) == (0, "", "no batch yet\n")


def test_broken_batch_does_not_hide_the_others(command: Command, tmp_path: Path) -> None:
    """A torn file costs one line's details; the line says so."""
    path = load("aggregation-hdfs", tmp_path).path
    (path / "offsets/4").write_bytes(b"v1\n{")
    lines = [json.loads(line) for line in command("log", path, "--json").out.splitlines()]
    assert [line["batch_id"] for line in lines if "problem" in line] == [4]
    assert lines[4]["why_not"] == "offsets/4 ends in the middle of its JSON"


def test_follow_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    """--follow shows what is there, then a new batch when it is planned and again when it is committed."""
    path = load("aggregation-hdfs", tmp_path).path
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "log", str(path), "--json", "--follow", "-n", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(60, process.kill)
    overdue.start()
    try:
        assert process.stdout is not None
        seen = [_batch(process.stdout.readline())]
        (path / "offsets/10").write_bytes((path / "offsets/9").read_bytes())
        seen.append(_batch(process.stdout.readline()))
        (path / "commits/10").write_bytes((path / "commits/9").read_bytes())
        seen.append(_batch(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        overdue.cancel()
        process.stdout.close()
    assert seen == [(9, "committed"), (10, "planned"), (10, "committed")]


def _batch(line: str) -> tuple[int, str]:
    batch = json.loads(line)
    return batch["batch_id"], batch["status"]


@pytest.mark.parametrize("verb", [["log"], ["show"], ["fsck"]])
def test_no_heavy_import(verb: list[str], corpus) -> None:
    """Looking at a local checkpoint loads neither Spark nor pandas, Arrow, an object store or the printing library."""
    path = str(corpus("aggregation-rocksdb").path)
    code = (
        f"import sys; sys.argv = ['headwater', {verb[0]!r}, {path!r}, '--json']\n"
        "from headwater.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'pyspark', 'py4j', 'pandas', 'numpy', 'pyarrow', 'duckdb', 'fsspec', 'rocksdict', 'nicegui', 'rich'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "HEAVY []"
