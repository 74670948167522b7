"""One archive for each checkpoint: the folder as Spark left it, and the notes about it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def pack(place: Path, notes: Mapping[str, Any], archive: Path) -> None:
    """Store every file below `place` with its contents and times, and each note as `<name>.json`."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in sorted(place.rglob("*")):
            tar.add(path, str(path.relative_to(place)), recursive=False, filter=_anonymous)
        for name, note in notes.items():
            text = json.dumps(note, indent=0, ensure_ascii=False).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))


def unpack(archive: Path, place: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="tar")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
