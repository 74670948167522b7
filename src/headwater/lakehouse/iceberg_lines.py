"""Append records as rows of an Iceberg table without Spark: one text column, ``value``, as for Delta tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwater.core.buffered_writer import BufferedWriter
from headwater.core.errors import HeadwaterError, UsageProblem
from headwater.lakehouse.iceberg_catalog import catalog_settings, is_hadoop
from headwater.lakehouse.iceberg_pyiceberg import PyIcebergTable, catalog_unreachable
from headwater.lakehouse.tables import TableUri

if TYPE_CHECKING:
    from pyiceberg.table import Table

ATTEMPTS = 100


class IcebergLineWriter(BufferedWriter):
    """Writes records as snapshots of a table, one data file each. Other programs may append to it at the same time."""

    def __init__(self, uri: TableUri, *, records_per_file: int) -> None:
        super().__init__(records_per_file)
        self._uri = uri
        settings = catalog_settings(uri)
        if "/" in uri.path or is_hadoop(settings):
            raise _bad_target(uri, "PyIceberg, which writes the rows, has no Hadoop catalog")
        if len(uri.path.split(".")) < 3:
            raise _bad_target(uri, "a table is named CATALOG.DATABASE.TABLE")
        self._named = PyIcebergTable(uri.path, settings, creates=True)
        try:
            self._table = self._open()
        except HeadwaterError:
            raise
        except Exception as error:
            raise catalog_unreachable(self._named.catalog_name, error) from error

    def _open(self) -> Table:
        catalog = self._named.catalog
        from pyiceberg.exceptions import TableAlreadyExistsError  # noqa: PLC0415  an optional package
        from pyiceberg.schema import Schema  # noqa: PLC0415
        from pyiceberg.types import NestedField, StringType  # noqa: PLC0415

        name = self._named.identifier
        if not catalog.table_exists(name):
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            try:
                return catalog.create_table(name, Schema(NestedField(1, "value", StringType(), required=False)))
            except TableAlreadyExistsError:  # another program has created it
                pass
        table = catalog.load_table(name)
        names = [field.name for field in table.schema().fields]
        if names != ["value"] or table.spec().fields:
            raise _bad_target(self._uri, f"it has other columns than value, or partitions: {', '.join(names)}")
        return table

    def _write_group(self, records: Sequence[bytes]) -> None:
        import pyarrow as pa  # noqa: PLC0415  a command that fails early does not need it
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

        texts = [record.decode("utf-8", "replace") for record in records]
        rows: Any = pa.table({"value": pa.array(texts, pa.string())})
        for _ in range(ATTEMPTS):
            try:
                self._table.append(rows)
            except CommitFailedException:  # another program has committed since
                self._table.refresh()
                continue
            except Exception as error:
                raise catalog_unreachable(self._named.catalog_name, error) from error
            return
        raise _bad_target(self._uri, f"other programs commit to it too often: {ATTEMPTS} attempts failed")


def _bad_target(uri: TableUri, reason: str) -> UsageProblem:
    return UsageProblem(
        "bad-target",
        f"cannot write generated records to the Iceberg table {uri.path}",
        evidence={"reason": reason},
        remedy="use a catalog in a database: --to "
        "'iceberg:lake.shop.raw?catalog.type=jdbc&catalog.uri=jdbc:sqlite:/data/catalog.db&catalog.warehouse=/data/lake'",
    )
