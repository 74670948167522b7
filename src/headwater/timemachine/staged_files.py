"""New files of a checkpoint while a change is only planned.

They wait in a temporary folder of this machine, so that a plan needs little memory however large the state is, and so
that nothing is written to the checkpoint before the plan is applied. Small files stay in memory.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

_BLOCK_BYTES = 1 << 20
# Larger files are written next to the journal before the change begins, and not stored in it.
LARGEST_PUT = 64 * 1024


class StagedFiles(Mapping[str, bytes]):
    """Files by the path that they get in the checkpoint's scratch folder. They are deleted with this object."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._places: dict[str, Path] = {}

    @cached_property
    def folder(self) -> Path:
        """The temporary folder."""
        place = tempfile.mkdtemp(prefix="headwater-change-")
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        return Path(place)

    def put(self, path: str, blocks: Iterable[bytes]) -> bytes | None:
        """Stage a file that is given in blocks. Return its contents instead if it is small."""
        waiting, start = iter(blocks), bytearray()
        while len(start) <= LARGEST_PUT:
            block = next(waiting, None)
            if block is None:
                return bytes(start)
            start += block
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as out:
            out.write(start)
            out.writelines(waiting)
        self._places[f"{self._prefix}/{path}"] = place
        return None

    def adopt(self, path: str) -> bytes | None:
        """Stage a file that was written to its path below the temporary folder. Return its contents if it is small."""
        place = self.folder / path
        if place.stat().st_size <= LARGEST_PUT:
            data = place.read_bytes()
            place.unlink()
            return data
        self._places[f"{self._prefix}/{path}"] = place
        return None

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield a staged file in blocks."""
        with self._places[path].open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                yield block

    def __getitem__(self, path: str) -> bytes:
        return self._places[path].read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
