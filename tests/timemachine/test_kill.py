"""``kill -9`` at random moments of the command, on a real disk."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from broker_support import HEADWATER, headwater
from corpus_support import load
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.journal import read_pending
from lakehouse.delta_support import Writer, rows_of
from lakehouse.iceberg_support import Lake
from timemachine.test_rewind_and_undo import bytes_of

SEED = int(os.environ.get("SEED", "1"))
ROUNDS = int(os.environ.get("KILLS", "40"))


def contents(path: Path) -> dict[str, bytes]:
    return {name: data for name, (data, _) in bytes_of(path).items() if not name.endswith(".headwater.tmp")}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kill_9(tmp_path: Path) -> None:
    """Whenever a rewind or undo is killed, resume leads to the new checkpoint and abort to the old one."""
    dice = random.Random(SEED)
    origin = load("join-changelog", tmp_path / "origin").path
    rewound = tmp_path / "rewound"
    shutil.copytree(origin, rewound)
    rewind = ["rewind", "--to", "4", "--yes", "--allow-missing-input"]
    assert headwater(rewind[0], rewound, *rewind[1:]).returncode == 0
    old, new = contents(origin), contents(rewound)
    assert old != new
    started = time.monotonic()
    headwater("log", rewound)
    usual_seconds = time.monotonic() - started
    interrupted = 0
    for number in range(ROUNDS):
        path = tmp_path / f"round {number}"
        verb, before, after = dice.choice([(rewind, old, new), (["undo", "--yes"], new, old)])
        shutil.copytree(origin if before is old else rewound, path)
        process = subprocess.Popen(
            [HEADWATER, verb[0], path, *verb[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _kill_while_it_works(process, path, dice, usual_seconds)
        pending = read_pending(LocalTree(path))
        if pending is None:
            assert contents(path) in (before, after), f"round {number}, seed {SEED}"
        else:
            interrupted += 1
            assert headwater("fsck", path).returncode == 1
            option = dice.choice(["--resume", "--abort"])
            ended = headwater("rewind", path, option)
            if "already-done" in ended.stderr:
                ended = headwater("rewind", path, "--resume")
                option = "--resume"
            assert ended.returncode == 0, ended.stderr
            assert contents(path) == (after if option == "--resume" else before), f"round {number}, seed {SEED}"
        shutil.rmtree(path)
    print(f"kill -9: {ROUNDS} rounds, {interrupted} of them during a change, seed {SEED}")
    assert interrupted


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["delta", "hadoop", "jdbc"])
def test_kill_9_with_a_table(tmp_path: Path, kind: str) -> None:
    """Whenever a rewind or undo with a table is killed, resume or abort leads to a consistent pair."""
    dice = random.Random(SEED)
    origin = tmp_path / "origin"
    checkpoint = load("join-changelog", origin).path
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    committed = sorted(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    interrupted = 0
    for number in range(ROUNDS):
        path, place = tmp_path / f"round {number}", tmp_path / f"table-{number}"
        writer = Writer(place) if kind == "delta" else Lake(place, "hadoop" if kind == "hadoop" else "jdbc")
        sink = writer.sink if isinstance(writer, Lake) else f"delta:{place}"
        shutil.copytree(checkpoint, path)
        for batch in committed:
            writer.batch(query_id, batch)
        rewind = ["rewind", path, "--to", "4", "--sink", sink, "--yes", "--allow-missing-input"]
        verb, before, after = rewind, committed, [batch for batch in committed if batch <= 4]
        if dice.random() < 0.5:
            assert headwater(*rewind).returncode == 0
            verb, before, after = ["undo", path, "--yes"], after, before
        process = subprocess.Popen([HEADWATER, *verb], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _kill_while_it_works(process, path, dice, 1.0)
        allowed = [before, after]
        if read_pending(LocalTree(path)) is not None:
            interrupted += 1
            option = dice.choice(["--resume", "--abort"])
            ended = headwater("rewind", path, option)
            if "already-done" in ended.stderr:
                option, ended = "--resume", headwater("rewind", path, "--resume")
            assert ended.returncode == 0, ended.stderr
            allowed = [after if option == "--resume" else before]
        rows = [batch for _, batch in (rows_of(place) if isinstance(writer, Writer) else writer.rows)]
        commits = sorted(int(file.name) for file in (path / "commits").iterdir() if file.name.isdigit())
        assert rows in allowed and commits == rows, f"round {number}, seed {SEED}"
    assert interrupted


def _kill_while_it_works(
    process: subprocess.Popen[bytes], path: Path, dice: random.Random, usual_seconds: float
) -> None:
    """Kill the process, mostly within the few milliseconds in which files are moved, sometimes at any time."""
    if dice.random() < 0.8:
        deadline = time.monotonic() + 60
        while (
            not (path / "_headwater/pending.json").exists() and process.poll() is None and time.monotonic() < deadline
        ):
            pass
        time.sleep(dice.random() * 0.02)
    else:
        time.sleep(dice.random() * usual_seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
