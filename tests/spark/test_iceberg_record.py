"""What a run records about an Iceberg table, so that later commands find it without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import Delta, Files, Iceberg, Job, Static
from headwater.core.errors import JobRefused
from headwater.spark.ownership import Run, job_record
from headwater.spark.table_formats import ICEBERG_CATALOG, formats_of, require_format

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


@pytest.mark.parametrize("configured", [True, False])
def test_the_password_of_a_catalog_is_not_recorded(configured: bool) -> None:
    """The record of a run shows where the catalog is, and no password."""
    settings = {"type": "jdbc", "uri": "postgresql+psycopg2://ann:hidden@db/catalog", "header.Authorization": "hidden"}
    conf = {f"{CATALOG}.{name}": value for name, value in settings.items()} if configured else {}
    table = Iceberg("lake.shop.sales", catalog={} if configured else settings)
    job = Job("copy", lambda rows: rows, reads=table, writes=table, conf=conf)
    record = job_record(Run(job, None, "checkpoint"))
    assert b"hidden" not in record.to_bytes()
    assert "db/catalog" in (record.sink or "")


class Session:
    """A session that knows Iceberg, with the given settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
        monkeypatch.setattr("headwater.spark.table_formats.has_class", lambda *_: True)
        monkeypatch.setattr("headwater.spark.table_formats.require_table_format", lambda _: None)
        self.settings = {CATALOG: ICEBERG_CATALOG, **settings}
        self.conf = self

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value


def test_a_conflict_of_catalogs_hides_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal of a table whose catalog the session has in another way shows no password of either."""
    session = Session(
        monkeypatch, {f"{CATALOG}.jdbc.password": "hidden", f"{CATALOG}.uri": "jdbc:x://db/?password=hidden"}
    )
    for name, value in (("jdbc.password", "hidden too"), ("uri", "https://ann:hidden@db/")):
        with pytest.raises(JobRefused) as refused:
            require_format(session, Iceberg("lake.shop.sales", catalog={name: value}))  # type: ignore[arg-type]
        assert refused.value.code == "catalog"
        assert "hidden" not in str(refused.value)


def test_a_recorded_catalog_does_not_replace_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a record has no password, that of the session is used, and none is made up."""
    session = Session(monkeypatch, {f"{CATALOG}.jdbc.password": "hidden"})
    recorded = {"type": "jdbc", "jdbc.password": "***", "uri": "jdbc:postgresql://db/c?user=ann&password=***"}
    require_format(session, Iceberg("lake.shop.sales", catalog=recorded))  # type: ignore[arg-type]
    assert session.settings == {
        CATALOG: ICEBERG_CATALOG,
        f"{CATALOG}.jdbc.password": "hidden",
        f"{CATALOG}.type": "jdbc",
    }


def test_formats_of_static_tables() -> None:
    """A job that joins a Delta table needs Delta's jars."""
    reads = {"sales": Files("in", schema="a INT"), "products": Static(Delta("products"))}
    job = Job("named", lambda sales, products: sales.join(products, "a"), reads=reads, writes=Files("out"))
    assert formats_of(job) == ["delta"]
