"""The inputs of a job: its own, those of ``--source``, and those that a run recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater import Console, Files, Job, Kafka, Postgres, Static, Table
from headwater.checkpoint.layout import JOB_FILE
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.record import JobRecord
from headwater.core.errors import UsageProblem
from headwater.jobs.uris import inputs_from_uris, uri_of
from headwater.spark.recorded_job import recorded_job
from headwater.spark.session import jars_for

DATABASE = "postgresql://app:secret@db:5432/shop?sslmode=require"
RECORDED = "postgresql://app:***@db:5432/shop?table=products&sslmode=require"
ITEMS, PRODUCTS = Kafka("items", "product INT"), Static(Postgres(DATABASE, "products"), refresh="batch")


def joined(items: Any, products: Any) -> Any:
    """Join items with products."""
    return items.join(products, "product")


JOB = Job("joined", joined, reads={"items": ITEMS, "products": PRODUCTS}, writes=Console())


def inputs(recorded: Mapping[str, str], *given: str) -> Mapping[str, Any]:
    """Return the inputs of the job on a checkpoint with these recorded inputs."""
    files = MemoryTree({JOB_FILE: JobRecord("joined", sources=recorded).to_bytes()})
    return recorded_job(files, JOB, sources=given).inputs


def test_a_table_is_recorded_without_its_password() -> None:
    """The job's own table, with its password, is used if it is still the one that was recorded."""
    assert uri_of(PRODUCTS) == RECORDED
    recorded = {"items": "kafka://broker:9092/items", "products": RECORDED}
    assert inputs(recorded) == {"items": Kafka("items", "product INT", servers="broker:9092"), "products": PRODUCTS}


def test_a_password_has_to_be_given_again() -> None:
    """A table that another URI named cannot be read again without the password, which --source provides."""
    recorded = {"products": RECORDED.replace("@db", "@copy")}
    with pytest.raises(UsageProblem) as refused:
        inputs(recorded)
    assert refused.value.code == "secret-not-recorded"
    assert refused.value.evidence["recorded"] == recorded["products"]
    given = inputs(recorded, "products=postgresql://app:other@copy/shop?table=products")
    expected = Static(Postgres("postgresql://app:other@copy:5432/shop", "products", ""), refresh="batch")
    assert given["products"] == expected


def test_a_table_is_replaced_by_its_name() -> None:
    """A URI replaces a static table and keeps its schema and how often it is read."""
    own = Static(Files("data", schema="product INT", format="csv", decode={"sep": ";"}), refresh="batch")
    changed = inputs_from_uris({"products": "files:other?header=true"}, {"products": own})["products"]
    assert isinstance(changed, Static)
    assert (changed.refresh, changed.table) == (
        "batch",
        Files("other", "product INT", "csv", options={"header": "true"}, decode={"sep": ";", "header": "true"}),
    )
    assert inputs_from_uris({"products": "table:t"}, {"products": own})["products"] == Static(Table("t"), "batch")
    with pytest.raises(UsageProblem, match="kafka: cannot be a static table"):
        inputs_from_uris({"products": "kafka://h/t"}, {"products": own})


def test_the_driver_of_postgresql_is_fetched_only_for_its_tables() -> None:
    """The jars of a job are those of its sources, tables and sink."""
    assert jars_for(JOB) == ["spark", "postgres"]
    on_files = JOB.with_inputs({"items": Files("items", "product INT"), "products": Static(Files("s3a://b/p"))})
    assert jars_for(on_files) == ["s3"]
