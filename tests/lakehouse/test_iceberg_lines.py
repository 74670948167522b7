"""Generated records as rows of an Iceberg table, written without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import run_here
from headwater.core.errors import UsageProblem
from headwater.lakehouse.iceberg_lines import IcebergLineWriter
from headwater.lakehouse.iceberg_pyiceberg import PyIcebergTable
from headwater.lakehouse.tables import TableUri, parse_table_uri


def table_uri(folder: Path, table: str = "shop.raw") -> TableUri:
    found = parse_table_uri(
        f"iceberg:lake.{table}?catalog.type=jdbc&catalog.uri=jdbc:sqlite:{folder}/catalog.db"
        f"&catalog.warehouse={folder}/lake"
    )
    assert found is not None
    return found


def values(uri: TableUri) -> list[str]:
    settings = {name.removeprefix("catalog."): value for name, value in uri.options.items()}
    table = PyIcebergTable(uri.path, settings).catalog.load_table("shop.raw")
    return [str(text) for text in table.scan().to_arrow().column("value").to_pylist()]


def test_each_full_file_is_a_snapshot(tmp_path: Path) -> None:
    """The table is created, in a database that had no catalog; each group of records is a snapshot."""
    uri = table_uri(tmp_path)
    with IcebergLineWriter(uri, records_per_file=2) as writer:
        writer.send_values([b"1", b"2", b"3"])
        assert sorted(values(uri)) == ["1", "2"]
        writer.send_values([b"4", b"5"])
    assert sorted(values(uri)) == ["1", "2", "3", "4", "5"]


def test_two_writers(tmp_path: Path) -> None:
    """A commit that another program made first is kept, and the rows are appended after it."""
    uri = table_uri(tmp_path)
    first = IcebergLineWriter(uri, records_per_file=1)
    second = IcebergLineWriter(uri, records_per_file=1)
    for number in range(2):
        first.send_values([f"a{number}".encode()])
        second.send_values([f"b{number}".encode()])
    assert sorted(values(uri)) == ["a0", "a1", "b0", "b1"]


def test_command(tmp_path: Path) -> None:
    """`headwater generate` appends to the table of an earlier command."""
    uri = table_uri(tmp_path)
    to = f"{uri.sink}?" + "&".join(f"{name}={value}" for name, value in uri.options.items())
    for seed in (1, 2):
        done = run_here("generate", "sales", "--to", to, "--count", 30, "--seed", seed, "--per-file", 20, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["records"] == 30
    assert len(values(uri)) == 60
    assert {"store", "amount"} <= json.loads(values(uri)[0]).keys()


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (
            TableUri("iceberg", "lake.shop.raw", {"catalog.type": "hadoop", "catalog.warehouse": "w"}),
            "no Hadoop catalog",
        ),
        (TableUri("iceberg", "lake/shop/raw", {}), "no Hadoop catalog"),
        (TableUri("iceberg", "raw", {}), "CATALOG.DATABASE.TABLE"),
    ],
)
def test_refused_catalogs(uri: TableUri, reason: str) -> None:
    """A catalog that PyIceberg does not have is refused with a remedy."""
    with pytest.raises(UsageProblem, match="cannot write generated records") as refused:
        IcebergLineWriter(uri, records_per_file=1)
    assert reason in refused.value.evidence["reason"] and "catalog.type=jdbc" in str(refused.value.remedy)


def test_other_columns(tmp_path: Path) -> None:
    """A table with other columns is left alone."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    uri = table_uri(tmp_path)
    settings = {name.removeprefix("catalog."): value for name, value in uri.options.items()}
    catalog = PyIcebergTable(uri.path, settings, creates=True).catalog
    catalog.create_namespace("shop")
    catalog.create_table("shop.raw", Schema(NestedField(1, "amount", LongType(), required=False)))
    with pytest.raises(UsageProblem) as refused:
        IcebergLineWriter(uri, records_per_file=1)
    assert "other columns than value" in refused.value.evidence["reason"]


def test_unknown_option(tmp_path: Path) -> None:
    """An option that is not a setting of the catalog is refused."""
    done = run_here("generate", "sales", "--to", "iceberg:lake.shop.raw?colour=blue", "--count", 1, cwd=tmp_path)
    assert done.returncode != 0 and "Delta or Iceberg table" in " ".join(done.stderr.split())
