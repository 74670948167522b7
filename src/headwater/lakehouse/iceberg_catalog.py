"""Where an Iceberg table's current metadata is, and how it is replaced: the part of a catalog that a rewind needs.

PyIceberg commits to catalogs in databases, REST services and the like. It has no Hadoop catalog. There, the metadata
files themselves are the catalog: ``vN.metadata.json`` is created only if it does not exist, as the format describes it.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import hadoop_crc_of
from headwater.checkpoint.locate import open_files
from headwater.core.errors import REDACTED, ChangeRefused, CheckpointUnreadable, UsageProblem
from headwater.lakehouse.iceberg_metadata import TableMetadata, Wanted, next_metadata
from headwater.lakehouse.tables import TableUri

CATALOG = "catalog."
HADOOP_CLASS = "org.apache.iceberg.hadoop.HadoopCatalog"
METADATA = "metadata"
VERSION_HINT = f"{METADATA}/version-hint.text"
COMPRESSION = "write.metadata.compression-codec"
_NAME = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")


class CatalogTable(Protocol):
    """A table of a catalog."""

    def load(self) -> TableMetadata | None:
        """Return the current metadata; None if there is no such table."""

    def commit(self, base: TableMetadata, wanted: Wanted) -> None:
        """Replace the metadata, unless it is as wanted already. If another program was first, nothing happens."""


def open_in_catalog(uri: TableUri) -> CatalogTable:
    """Return the table that a URI names: by its catalog's settings, by those of PyIceberg, or by its folder."""
    if "/" in uri.path:
        return HadoopTable(open_files(_absolute(uri.path)))
    settings = catalog_settings(uri)
    if is_hadoop(settings):
        return HadoopTable(open_files(hadoop_folder(uri)))
    from headwater.lakehouse.iceberg_pyiceberg import PyIcebergTable  # noqa: PLC0415  an optional package

    return PyIcebergTable(uri.path, settings)


def catalog_settings(uri: TableUri) -> dict[str, str]:
    """Return the settings of the catalog in a table's URI, as Spark names them, without passwords that were hidden."""
    found = {name.removeprefix(CATALOG): value for name, value in uri.options.items() if name.startswith(CATALOG)}
    return {name: value for name, value in found.items() if REDACTED not in value}


def is_hadoop(settings: Mapping[str, str]) -> bool:
    """Return whether settings are those of a Hadoop catalog."""
    return settings.get("type") == "hadoop" or settings.get("catalog-impl") == HADOOP_CLASS


def hadoop_folder(uri: TableUri) -> str:
    """Return the folder of a table in a Hadoop catalog, or the folder that the URI itself names."""
    if "/" in uri.path:
        return _absolute(uri.path)
    settings = catalog_settings(uri)
    if not is_hadoop(settings) or "warehouse" not in settings:
        raise UsageProblem(
            "catalog",
            f"the folder of {uri.sink} is unknown: only a Hadoop catalog derives it from the table's name",
            remedy=f"--sink 'iceberg:{uri.path}?catalog.type=hadoop&catalog.warehouse=PATH'",
        )
    _, *names = uri.path.split(".")
    return "/".join([_absolute(settings["warehouse"]).rstrip("/"), *names])


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path.removeprefix("file:")).absolute())


class HadoopTable:
    """A table whose folder is its own catalog."""

    def __init__(self, files: FileTree) -> None:
        self.files = files

    def load(self) -> TableMetadata | None:
        names = self._names()
        if not names:
            return None
        data = self.files.read(f"{METADATA}/{names[max(names)]}")
        try:
            value: dict[str, Any] = json.loads(gzip.decompress(data) if ".gz" in names[max(names)] else data)
            return TableMetadata(value, f"{value['location']}/{METADATA}/{names[max(names)]}")
        except (ValueError, KeyError, TypeError, RecursionError, OSError, EOFError, zlib.error) as error:
            raise CheckpointUnreadable(
                "table-unreadable",
                f"the metadata of the table cannot be read: {error}",
                evidence={"file": f"{self.files.location}/{METADATA}/{names[max(names)]}"},
            ) from error

    def commit(self, base: TableMetadata, wanted: Wanted) -> None:
        if not self.files.can_create:
            raise ChangeRefused(
                "no-exclusive-create",
                "this store cannot create a file only if it does not exist, which a commit to the table needs",
                evidence={"table": self.files.location},
                remedy="keep the table in a catalog of another type",
            )
        found = _NAME.fullmatch(base.location.rpartition("/")[2])
        assert found is not None
        version = int(found[1]) + 1
        if base.is_set(wanted):
            write_version_hint(self.files, version - 1)  # an interruption may have left an older one
            return
        if version in self._names():
            return
        packed = base.properties.get(COMPRESSION, "none").lower() == "gzip"
        data = json.dumps(next_metadata(base, wanted)).encode()
        with suppress(FileExistsError):
            self.files.create(
                f"{METADATA}/v{version}{'.gz' if packed else ''}.metadata.json", gzip.compress(data) if packed else data
            )
            write_version_hint(self.files, version)

    def _names(self) -> dict[int, str]:
        """Return the names of the metadata files by version."""
        found = {entry.name: _NAME.fullmatch(entry.name) for entry in self.files.entries(METADATA)}
        return {int(match[1]): name for name, match in found.items() if match}


def write_version_hint(files: FileTree, version: int) -> None:
    """Write the version that readers start with. They continue to the newest one that exists."""
    # A checksum that does not match would keep Hadoop from reading the file. It need not exist.
    crc = hadoop_crc_of(VERSION_HINT)
    if files.exists(crc):
        files.remove(crc)
    files.write(VERSION_HINT, str(version).encode())
