"""What a run records about an Iceberg table, so that later commands find it without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import Delta, Files, Iceberg, Job, Static
from headwater.spark.ownership import Run, job_record
from headwater.spark.table_formats import formats_of

CATALOG = "spark.sql.catalog.lake"


@pytest.mark.parametrize("configured", [True, False])
def test_the_catalog_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: bool) -> None:
    """Settings of the job or of Spark's configuration are recorded, with an absolute path of the warehouse."""
    monkeypatch.chdir(tmp_path)
    settings = {"type": "hadoop", "warehouse": "warehouse"}
    conf = {CATALOG: "org.apache.iceberg.spark.SparkCatalog"}
    conf |= {f"{CATALOG}.{name}": value for name, value in settings.items()}
    table = Iceberg("lake.shop.sales", catalog={} if configured else settings)
    job = Job("copy", lambda rows: rows, reads=table, writes=table, conf=conf if configured else {})
    record = job_record(Run(job, None, "checkpoint"))
    expected = f"iceberg:lake.shop.sales?catalog.type=hadoop&catalog.warehouse={tmp_path}/warehouse"
    assert (record.sink, record.source) == (expected, expected)


def test_formats_of_static_tables() -> None:
    """A job that joins a Delta table needs Delta's jars."""
    reads = {"sales": Files("in", schema="a INT"), "products": Static(Delta("products"))}
    job = Job("named", lambda sales, products: sales.join(products, "a"), reads=reads, writes=Files("out"))
    assert formats_of(job) == ["delta"]
