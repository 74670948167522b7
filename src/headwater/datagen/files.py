"""Write records as files for Spark's file source, to a folder or to an object store: each appears complete, in order."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.core.buffered_writer import BufferedWriter
from headwater.core.errors import HeadwaterError, ServiceUnreachable, SetupProblem

SUFFIXES = {"json": ".json", "csv": ".csv", "text": ".txt"}
MILLISECOND_NS = 1_000_000


class FileWriter(BufferedWriter):
    """Writes files one after the other. A file appears when it has its number of records.

    File names sort in the order of writing. In a place that already has files, numbering continues.
    """

    def __init__(self, *, stem: str, suffix: str, records_per_file: int, header: str | None = None) -> None:
        super().__init__(records_per_file)
        self.files = 0
        self._stem, self._suffix = stem, suffix
        self._header = [] if header is None else [header.encode()]
        self._next = 0

    def _write_group(self, records: Sequence[bytes]) -> None:
        name = f"{self._stem}-{self._next:010d}{self._suffix}"
        self._put(name, b"\n".join([*self._header, *records, b""]))
        self._next += 1
        self.files += 1

    def _number_after(self, names: Iterable[str]) -> int:
        """Return the first number that no existing file has."""
        mine = [name for name in names if name.startswith(f"{self._stem}-") and name.endswith(self._suffix)]
        numbers = [name.removeprefix(f"{self._stem}-").partition(".")[0] for name in mine]
        return max((int(digits) for digits in numbers if digits.isdecimal()), default=-1) + 1

    @abstractmethod
    def _put(self, name: str, data: bytes) -> None:
        """Make a complete file visible under its name."""


class FolderWriter(FileWriter):
    """Writes to a local folder. A file appears by a rename.

    Modification times increase by at least a millisecond: Spark's file source orders files by them.
    """

    def __init__(
        self, folder: Path, *, stem: str, suffix: str, records_per_file: int, header: str | None = None
    ) -> None:
        super().__init__(stem=stem, suffix=suffix, records_per_file=records_per_file, header=header)
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for unfinished in folder.glob(f".{stem}-*.writing"):
                unfinished.unlink()
            existing = sorted(folder.glob(f"{stem}-*{suffix}"))
            self._newest_ns = max((file.stat().st_mtime_ns for file in existing), default=0)
        except OSError as error:
            raise self._refusal(error) from None
        self._next = self._number_after(file.name for file in existing)

    def _put(self, name: str, data: bytes) -> None:
        # Spark's file source ignores names that start with a dot.
        draft = self.folder / f".{name}.writing"
        self._newest_ns = max(time.time_ns(), self._newest_ns + MILLISECOND_NS)
        try:
            draft.write_bytes(data)
            os.utime(draft, ns=(self._newest_ns, self._newest_ns))
            draft.rename(self.folder / name)
        except OSError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: OSError) -> SetupProblem:
        return SetupProblem(
            "folder-unwritable",
            "cannot write files to the folder",
            evidence={"folder": self.folder, "reason": error.strerror or error},
            remedy="choose another folder: --to files:data/in?format=json",
        )


class ObjectWriter(FileWriter):
    """Writes to an object store through fsspec, such as S3. An object appears when its upload is complete.

    The store sets the modification times. Objects of the same second are read in the order of their names.
    """

    def __init__(self, url: str, *, stem: str, suffix: str, records_per_file: int, header: str | None = None) -> None:
        super().__init__(stem=stem, suffix=suffix, records_per_file=records_per_file, header=header)
        self.url = url.rstrip("/")
        scheme, _, self._root = self.url.partition("://")
        with self._explained():
            self._system = _file_system("s3" if scheme == "s3a" else scheme)
            self._next = self._number_after(self._existing())

    def _existing(self) -> list[str]:
        try:
            return [str(path).rpartition("/")[2] for path in self._system.ls(self._root, detail=False)]
        except FileNotFoundError:  # no object has this prefix yet
            return []

    def _put(self, name: str, data: bytes) -> None:
        with self._explained():
            self._system.pipe_file(f"{self._root}/{name}", data)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except HeadwaterError:
            raise
        except Exception as error:  # each store raises exceptions of its own
            raise ServiceUnreachable(
                "store-unreachable",
                f"cannot write objects to {self.url}",
                evidence={"reason": str(error).partition("\n")[0] or type(error).__name__},
                remedy="check the bucket, the address and the credentials "
                "(for S3: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_PROFILE)",
            ) from None


def _file_system(scheme: str) -> Any:
    import fsspec  # noqa: PLC0415  not needed for local folders

    try:
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise SetupProblem(
            "no-store-driver",
            f"no driver is installed for {scheme}://",
            evidence={"reason": str(error).partition("\n")[0]},
            remedy="pip install 'headwater[s3]'" if scheme == "s3" else "install the fsspec driver for it",
        ) from None
