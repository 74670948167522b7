"""``headwater ui``: which checkpoints it serves, and what they are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.running import Command
from fleet.streams import write_stream
from headwater.cli import ui
from waiting_support import wait_until


@pytest.mark.parametrize(
    ("checkpoints", "names"),
    [
        (["a/checkpoint"], ["checkpoint"]),
        (["a/checkpoint", "b/checkpoint/"], ["a/checkpoint", "b/checkpoint"]),
        (["x/a/checkpoint", "y/a/checkpoint", "y/b"], ["x/a/checkpoint", "y/a/checkpoint", "b"]),
        (["checkpoint", "b/checkpoint"], ["checkpoint", "b/checkpoint"]),
        (["s3://one/ckpt", "s3://two/ckpt", "./local"], ["one/ckpt", "two/ckpt", "local"]),
        (["visits", "visits"], ["visits"]),
        (["/data/caf\udce9"], ["caf\\xe9"]),
        (["."], ["."]),
    ],
)
def test_names_are_unique(checkpoints: list[str], names: list[str]) -> None:
    """Checkpoints with the same folder name are told apart by the folders above them."""
    assert list(ui.page_names(checkpoints).values()) == names


def test_a_checkpoint_that_appears_beside_a_root(tmp_path: Path) -> None:
    """With --wait, a checkpoint that does not exist yet is shown among those of a folder once it exists."""
    write_stream(tmp_path / "root" / "a")
    watch = ui._fleet([str(tmp_path / "root"), str(tmp_path / "later")], wait=True)
    assert watch is not None
    try:
        wait_until(lambda: [one.name for one in watch.snapshot.streams] == ["root/a"], "the first stream")
        write_stream(tmp_path / "later")
        wait_until(lambda: [one.name for one in watch.snapshot.streams] == ["later", "root/a"], "the other stream")
    finally:
        watch.stop()


def test_a_folder_whose_name_is_not_utf8(command: Command, tmp_path: Path) -> None:
    """Such a folder is shown with the bytes of its name, and does not hide the others."""
    write_stream(tmp_path / "good")
    write_stream(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    ran = command("log", tmp_path)
    assert ran.status == 0, ran.err
    assert {line.split()[0] for line in ran.out.splitlines()[1:3]} == {"good", "caf\\xe9"}
