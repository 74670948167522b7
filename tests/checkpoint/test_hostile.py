"""Malicious checkpoints: nothing outside them is read or moved, and no code in them is run."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zipfile
from pathlib import Path

import pytest
import zstandard

from broker_support import run_here
from corpus_support import load
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import CheckpointUnreadable
from headwater.statefiles import codecs
from headwater.statefiles.codecs import decompress
from headwater.statefiles.reader import state_rows
from headwater.statefiles.rocksdb_snapshot import open_snapshot


def snapshot_naming(path: Path, table: str) -> None:
    """Change the name of a table file in a snapshot's zip."""
    with zipfile.ZipFile(path) as held:
        contents = {name: held.read(name) for name in held.namelist()}
    version, _, body = contents["metadata"].decode().partition("\n")
    about = json.loads(body)
    about["sstFiles"] = [{**about["sstFiles"][0], "dfsSstFileName": table}]
    contents["metadata"] = f"{version}\n{json.dumps(about)}".encode()
    with zipfile.ZipFile(path, "w") as out:
        for name, data in contents.items():
            out.writestr(name, data)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return load("aggregation-rocksdb", tmp_path / "checkpoint").path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("correct horse battery staple")
    return file


@pytest.mark.parametrize("way", ["relative", "absolute"])
def test_a_snapshot_cannot_name_files_elsewhere(checkpoint: Path, secret: Path, way: str) -> None:
    """Table names that lead outside the checkpoint are refused by readers and are an error for fsck."""
    table = str(secret) if way == "absolute" else f"../../../../../{secret.name}"
    for snapshot in checkpoint.glob("state/0/*/*.zip"):
        snapshot_naming(snapshot, table)
    with pytest.raises(CheckpointUnreadable) as refusal:
        state_rows(LocalTree(checkpoint))
    assert "horse" not in str(refusal.value)
    for verb in (["state"], ["fsck"], ["log"], ["rewind", "--to", "1", "--yes"], ["fork", str(checkpoint) + "-2"]):
        result = run_here(verb[0], checkpoint, *verb[1:])
        assert "Traceback" not in result.stderr
        assert "unexpected" not in result.stderr
        assert "horse" not in result.stdout + result.stderr
    assert secret.read_text().startswith("correct")


def test_entries_of_a_zip_stay_in_their_folder(checkpoint: Path, tmp_path: Path) -> None:
    """An entry such as ../../OPTIONS is extracted under its last name only."""
    from headwater.statefiles.rocksdb_snapshot import read_through_rocksdb

    path = next(iter(sorted(checkpoint.glob("state/0/*/*.zip"))))
    with zipfile.ZipFile(path, "a") as held:
        held.writestr("OPTIONS/../../../../stolen", b"")
        held.writestr("../MANIFEST-x", b"")
    files = LocalTree(checkpoint)
    snapshot = open_snapshot(files, str(path.relative_to(checkpoint)))
    before = set(tmp_path.rglob("*"))
    with contextlib.suppress(CheckpointUnreadable):
        read_through_rocksdb(files, snapshot)
    assert set(tmp_path.rglob("*")) == before


def test_a_pending_change_cannot_move_files_elsewhere(checkpoint: Path, secret: Path) -> None:
    """A pending change that a checkpoint brings along moves only files of that checkpoint."""
    move = {"do": "move", "root": "checkpoint", "source": f"../{secret.name}", "target": "offsets/7"}
    pretend_pending(checkpoint, move, sink=None)
    for ending in (["rewind", checkpoint, "--resume"], ["fsck", checkpoint, "--repair", "--yes"]):
        result = run_here(*ending)
        assert result.returncode != 0
        assert "Traceback" not in result.stderr
        assert secret.exists()


def test_a_pending_change_cannot_name_any_folder_its_sink(checkpoint: Path, secret: Path) -> None:
    """A folder that is not a file sink is left alone, even if the checkpoint names it as its sink."""
    move = {"do": "move", "root": "sink", "source": secret.name, "target": "gone"}
    pretend_pending(checkpoint, move, sink=str(secret.parent))
    result = run_here("fsck", checkpoint, "--repair", "--yes")
    assert "error[not-a-sink]" in result.stderr
    assert secret.exists()


def pretend_pending(checkpoint: Path, step: dict[str, str], sink: str | None) -> None:
    change = {"change_id": "x", "verb": "rewind", "about": "harm", "steps": [step], "sink": sink}
    pending = {"stage": 0, "begun_at_ms": 0, "metadata": None, "metadata_crc": None, "change": change}
    (checkpoint / "_headwater").mkdir(exist_ok=True)
    (checkpoint / "_headwater" / "pending.json").write_text(json.dumps(pending))


def test_a_sink_log_cannot_name_files_elsewhere(checkpoint: Path, secret: Path, tmp_path: Path) -> None:
    """A rewind does not set aside files outside the sink that the sink's log names."""
    sink = tmp_path / "sink"
    (sink / "_spark_metadata").mkdir(parents=True)
    entry = {
        "path": f"file://{sink}/../{secret.name}",
        "size": 1,
        "isDir": False,
        "modificationTime": 1,
        "action": "add",
    }
    last = max(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*"))
    for number in range(last + 1):
        (sink / "_spark_metadata" / str(number)).write_text(f"v1\n{json.dumps(entry)}" if number == last else "v1")
    result = run_here(
        "rewind", checkpoint, "--to", last - 1, "--yes", "--allow-missing-input", "--sink", f"files:{sink}"
    )
    assert result.returncode != 0
    assert "error[path-outside]" in result.stderr
    assert secret.exists()


def test_links_that_form_a_cycle(checkpoint: Path) -> None:
    """Links to folders are not followed, so a cycle of them ends."""
    for name in ("a", "b"):
        (checkpoint / "state" / "0" / name).symlink_to(checkpoint / "state")
        (checkpoint / "offsets" / name).symlink_to("/")
    result = run_here("fsck", checkpoint, "--json")
    assert "Traceback" not in result.stderr
    assert run_here("log", checkpoint, "--json").returncode == 0


def test_code_that_a_checkpoint_brings_along_is_not_run(checkpoint: Path, tmp_path: Path) -> None:
    """late does not run a job whose recorded file is inside the checkpoint, unless the user names it."""
    trace = tmp_path / "evidence"
    (checkpoint / "_headwater").mkdir(exist_ok=True)
    (checkpoint / "harm.py").write_text(f"open({str(trace)!r}, 'w')\n")
    record = {"job": "harm", "reference": f"{checkpoint}/harm.py:JOB", "source": "files:in"}
    (checkpoint / "_headwater" / "job.json").write_text(json.dumps(record))
    result = run_here("late", checkpoint)
    assert "error[job-in-checkpoint]" in result.stderr
    assert not trace.exists()


def test_lengths_that_are_only_claimed() -> None:
    """A few bytes that claim to be gigabytes are refused before memory is allocated."""
    block = struct.pack("<8sBiiI", b"LZ4Block", 0x20 | 6, 4, 2**31 - 1, 0) + b"\0\0\0\0"
    with pytest.raises(CheckpointUnreadable):
        decompress(block * 50_000, "state/0/0/1.delta")


def test_a_stream_that_decompresses_to_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decompression bomb is refused before it exhausts the memory."""
    monkeypatch.setattr(codecs, "_ZSTD_MOST_BYTES", 1 << 20)
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    with pytest.raises(CheckpointUnreadable, match="decompresses to more than"):
        decompress(bomb, "state/0/0/1.changelog")


def test_a_zip_that_decompresses_to_gigabytes() -> None:
    """Metadata of a snapshot that would exhaust the memory is refused by its size."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out,
        out.open("metadata", "w", force_zip64=True) as entry,
    ):
        for _ in range(300):
            entry.write(bytes(1024 * 1024))
    with pytest.raises(CheckpointUnreadable):
        open_snapshot(MemoryTree({"state/0/0/1.zip": packed.getvalue()}), "state/0/0/1.zip")


def test_no_reader_can_run_what_it_reads() -> None:
    """No code unpickles, parses XML, evaluates text or passes a string to a shell."""
    import ast

    import headwater as product

    forbidden_modules = {"pickle", "marshal", "shelve", "xml", "yaml", "dill"}
    forbidden_calls = {"eval", "exec", "compile"}
    found = []
    for file in sorted(Path(product.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
                found += [f"{file.name}: {name}" for name in names if name.partition(".")[0] in forbidden_modules]
            elif isinstance(node, ast.Call):
                name = node.func.id if isinstance(node.func, ast.Name) else ""
                shell = any(word.arg == "shell" for word in node.keywords)
                system = isinstance(node.func, ast.Attribute) and node.func.attr in {"system", "popen"}
                if name in forbidden_calls or shell or (system and _is_os(node.func)):
                    found.append(f"{file.name}:{node.lineno}")
    assert found == []


def _is_os(function: object) -> bool:
    import ast

    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "os"


def test_a_checkpoint_that_is_a_link(checkpoint: Path, tmp_path: Path) -> None:
    """A link to a checkpoint can be read like the checkpoint itself."""
    (tmp_path / "link").symlink_to(checkpoint)
    assert state_rows(LocalTree(tmp_path / "link")) == state_rows(LocalTree(checkpoint))
