"""Static tables: read at the start or in each batch, from files, tables and PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from broker_support import HEADWATER
from headwater import Console, Delta, Files, Job, Static, Table
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import HeadwaterError, JobRefused, ServiceUnreachable
from headwater.jars.versions import has_release
from headwater.jobs.endpoints import Postgres
from headwater.jobs.rules import check_job
from headwater.spark.internals import static_plans
from headwater.spark.ownership import Run
from headwater.spark.preflight import check_services
from headwater.spark.prepared import check_only, prepare_job
from headwater.spark.runner import run_job
from headwater.spark.writing import captured_rows
from headwater.testing import Crash
from headwater.timemachine.rewind import plan_rewind
from postgres_support import PostgresServer

PRODUCT = "product INT, name STRING"
TEA, MILK = {"product": 1, "name": "tea"}, {"product": 2, "name": "milk"}
GREEN_TEA = {"product": 1, "name": "green tea"}

Open = Callable[..., Any]


def named(sales: DataFrame, products: DataFrame) -> DataFrame:
    """Add the name of each product, by two uses of the table."""
    again = products.withColumnRenamed("name", "same_name")
    return sales.join(products, "product", "left").join(again, "product", "left")


def job_on(table: Files | Table | Postgres | Delta, refresh: Any = "start", **more: Any) -> Job:
    sales = Files("sales", schema="product INT", options={"maxFilesPerTrigger": "1"})
    return Job("named", named, reads={"sales": sales, "products": Static(table, refresh)}, writes=Console(), **more)


def sold(product: int, name: str | None) -> dict[str, Any]:
    return {"product": product, "name": name, "same_name": name}


def write_lines(file: Path, *rows: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}")
    draft.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    draft.rename(file)


def test_rows_of_the_start(scenario: Open) -> None:
    """A table that is read at the start keeps its rows until the job starts again, also after a crash."""
    s = scenario(job_on(Files("products", schema=PRODUCT)), tables={"products": [TEA]})
    s.feed(sales=[{"product": 1}]).emits(sold(1, "tea"))
    s.replace_table(products=[GREEN_TEA, MILK])
    s.feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "tea"), sold(2, None))
    s.feed(Crash.BEFORE_BATCH, sales=[{"product": 2}]).emits_nothing()
    s.restart().emits(sold(2, "milk"))
    s.rewind(to=0).emits(sold(1, "green tea"), sold(2, "milk"), sold(2, "milk"))


@pytest.mark.parametrize("per_batch", [False, True])
def test_rows_of_each_batch(scenario: Open, per_batch: bool) -> None:
    """A table that is read in each batch has its present rows in all of its uses, without a restart."""
    job = job_on(Files("products", schema=PRODUCT), "batch", per_batch=per_batch)
    s = scenario(job, tables={"products": [TEA]})
    s.feed(sales=[{"product": 1}]).emits(sold(1, "tea"))
    s.replace_table(products=[GREEN_TEA, MILK])
    s.feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "green tea"), sold(2, "milk"))
    s.replace_table(products=[])
    s.feed(sales=[{"product": 1}]).emits(sold(1, None))


def test_tables_of_a_scenario_need_a_schema_and_a_name(scenario: Open) -> None:
    """Rows for a table that the job does not have, or whose columns are unknown, are refused."""
    with pytest.raises(ValueError, match="named has no static table 'prices'; its static tables: products"):
        scenario(job_on(Files("products", schema=PRODUCT)), tables={"prices": []})
    with pytest.raises(ValueError, match="named reads products without a schema"):
        scenario(job_on(Table("products")), tables={"products": []})
    s = scenario(job_on(Table("products")), tables={"products": [TEA]}, schema={"products": PRODUCT})
    s.feed(sales=[{"product": 1}]).emits(sold(1, "tea"))
    with pytest.raises(ValueError, match=r"was given products=\[...\], and not 'prices'"):
        s.replace_table(prices=[])


def test_rows_of_the_start_are_kept_in_memory_and_broadcast(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The query joins the rows that were read at the start, by broadcast, whatever the session does to their files."""
    write_lines(tmp_path / "products" / "1.json", TEA)
    write_lines(tmp_path / "sales" / "1.json", {"product": 1})
    job = job_on(Files(str(tmp_path / "products"), schema=PRODUCT))
    job = job.with_inputs({"sales": replace(job.sources["sales"], path=str(tmp_path / "sales"))})
    prepared = prepare_job(headwater_spark, job)
    found: list[Any] = []
    with prepared.tables:
        prepared.tables.load()
        headwater_spark.createDataFrame([(1, "other")], PRODUCT).write.mode("overwrite").json(job_path(job))
        writer = prepared.frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda batch, _: found.extend(captured_rows(batch))).start()
        query.processAllAvailable()
        plan = query._jsq.explainInternal(False)
        query.stop()
        assert found == [sold(1, "tea")]
        assert [part in plan for part in ("InMemoryTableScan", "BroadcastHashJoin", "FileScan json")] == [
            True,
            True,
            False,
        ]
        # Another reader of the same files gets their present rows, not those that the job keeps.
        assert captured_rows(headwater_spark.read.schema(PRODUCT).json(job_path(job))) == [
            {"product": 1, "name": "other"}
        ]
        kept = prepared.tables.frames["products"]
        assert kept.storageLevel.useMemory
    assert not kept.storageLevel.useMemory


def job_path(job: Job) -> str:
    table = job.statics["products"].table
    assert isinstance(table, Files)
    return table.path


def run_on(spark: SparkSession, job: Job, folder: Path) -> list[dict[str, Any]]:
    """Run a job as ``headwater run`` does, and return the rows of its new output files."""
    out = folder / "out"
    before = set(out.glob("*.json"))
    chosen = replace(job, writes=Files(str(out), format="json"), trigger="available-now")
    check_services(chosen)
    run_job(spark, Run(chosen, "jobs.py:NAMED", str(folder / "checkpoint")), stop=threading.Event())
    lines = [line for file in set(out.glob("*.json")) - before for line in file.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda row: row["product"])


def on_sales(job: Job, folder: Path) -> Job:
    (folder / "sales").mkdir(exist_ok=True)
    return job.with_inputs({"sales": replace(job.sources["sales"], path=str(folder / "sales"))})


@pytest.mark.parametrize("refresh", ["start", "batch"])
def test_a_table_of_the_warehouse(headwater_spark: SparkSession, tmp_path: Path, refresh: str) -> None:
    """A table of the catalog is read again at each start and, if asked for, in each batch."""
    name = f"products_{refresh}"
    headwater_spark.createDataFrame([(1, "tea")], PRODUCT).write.saveAsTable(name)
    job = on_sales(job_on(Table(name), refresh), tmp_path)
    write_lines(tmp_path / "sales" / "1.json", {"product": 1})
    assert run_on(headwater_spark, job, tmp_path) == [sold(1, "tea")]
    headwater_spark.createDataFrame([(2, "milk")], PRODUCT).write.insertInto(name)
    write_lines(tmp_path / "sales" / "2.json", {"product": 2})
    assert run_on(headwater_spark, job, tmp_path) == [sold(2, "milk")]
    headwater_spark.sql(f"DROP TABLE {name}")
    with pytest.raises(ServiceUnreachable, match=f"table {name}, which the job reads as products, does not exist"):
        run_on(headwater_spark, job, tmp_path)


@pytest.mark.skipif(not has_release("delta"), reason="Delta has no release for this PySpark")
def test_a_delta_table(headwater_spark: SparkSession, scenario: Open, tmp_path: Path) -> None:
    """A Delta table is joined as of the start, as of a version, or in each batch as it is then."""
    path = str(tmp_path / "products")

    def write(*rows: tuple[int, str]) -> None:
        headwater_spark.createDataFrame(list(rows), PRODUCT).write.format("delta").mode("overwrite").save(path)

    with pytest.raises(ServiceUnreachable, match="there is no Delta table"):
        check_services(on_sales(job_on(Delta(path)), tmp_path))
    write((1, "tea"))
    opened = {refresh: scenario(job_on(Delta(path), refresh)) for refresh in ("start", "batch")}
    opened["version"] = scenario(job_on(Delta(path, options={"versionAsOf": "0"})))
    for one in opened.values():
        one.feed(sales=[{"product": 1}]).emits(sold(1, "tea"))
    write((1, "green tea"), (2, "milk"))
    opened["start"].feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "tea"), sold(2, None))
    opened["batch"].feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "green tea"), sold(2, "milk"))
    opened["version"].restart()
    opened["version"].feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "tea"), sold(2, None))
    with pytest.raises(JobRefused, match="cannot be read again in each batch"):
        prepare_job(headwater_spark, on_sales(job_on(Delta(path, options={"versionAsOf": "0"}), "batch"), tmp_path))


def test_parquet_in_partitions(headwater_spark: SparkSession, scenario: Open, tmp_path: Path) -> None:
    """Files without a schema keep the columns of the start; new folders of a partition are found in the next batch."""
    path = str(tmp_path / "products")
    rows = headwater_spark.createDataFrame([(1, "tea")], PRODUCT)
    rows.write.partitionBy("product").parquet(path)
    s = scenario(job_on(Files(path, format="parquet"), "batch"))
    s.feed(sales=[{"product": 1}]).emits(sold(1, "tea"))
    more = headwater_spark.createDataFrame(
        [("x", "none", 1), ("2", "milk", 2)], "product STRING, name STRING, size INT"
    )
    more.where("product = '2'").write.partitionBy("product").mode("append").parquet(path)
    s.feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "tea"), sold(2, "milk"))


def test_the_output_of_another_job(headwater_spark: SparkSession, scenario: Open, tmp_path: Path) -> None:
    """A table that another job appends to is read up to the last batch which that job has committed."""
    out = str(tmp_path / "out")
    copy = Job(
        "copy", lambda rows: rows, reads=Files(str(tmp_path / "in"), schema=PRODUCT), writes=Files(out, format="json")
    )
    copy = replace(copy, trigger="available-now")
    first = Run(copy, "jobs.py:COPY", str(tmp_path / "copy"))
    write_lines(tmp_path / "in" / "1.json", TEA)
    run_job(headwater_spark, first, stop=threading.Event())
    s = scenario(job_on(Files(out, schema=PRODUCT), "batch"))
    s.feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "tea"), sold(2, None))
    write_lines(tmp_path / "in" / "2.json", MILK)
    run_job(headwater_spark, first, stop=threading.Event())
    write_lines(tmp_path / "out" / "not-in-the-log.json", GREEN_TEA)
    s.feed(sales=[{"product": 1}, {"product": 2}]).emits(sold(1, "tea"), sold(2, "milk"))


@pytest.mark.parametrize(
    ("table", "refresh", "code", "part"),
    [
        (Files("{}/none", schema=PRODUCT), "start", "no-folder", "the files of the static table products do not exist"),
        (Files("{}/bad", schema=PRODUCT), "start", "static-rows", "{}/bad/1.json"),
        (Files("{}/*", schema=PRODUCT), "batch", "static-refresh", "pathGlobFilter"),
        (Table("fixed_rows"), "batch", "static-refresh", "with the rows of the start"),
        (Files("{}/other", schema="product INT, title STRING"), "start", "unknown-column", "`name`"),
        (Files("{}/other"), "start", "no-schema", "schema"),
    ],
)
def test_tables_that_cannot_be_read(
    headwater_spark: SparkSession, tmp_path: Path, table: Any, refresh: str, code: str, part: str
) -> None:
    """A table that is missing, malformed, or not readable in each batch is refused by name before the stream starts."""
    write_lines(tmp_path / "bad" / "1.json", TEA, '{"product": "one", "name": "tea"}')
    write_lines(tmp_path / "other" / "1.json", TEA)
    headwater_spark.createDataFrame([(1, "tea")], PRODUCT).createOrReplaceTempView("fixed_rows")
    table = replace(table, path=table.path.format(tmp_path)) if isinstance(table, Files) else table
    job = on_sales(replace(job_on(table, refresh), transform=needs_name), tmp_path)
    with pytest.raises(HeadwaterError) as refused:
        run_on(headwater_spark, job, tmp_path)
    assert (refused.value.code, part.format(tmp_path) in str(refused.value)) == (code, True), str(refused.value)
    assert not (tmp_path / "checkpoint" / "offsets").exists()


def needs_name(sales: DataFrame, products: DataFrame) -> DataFrame:
    return sales.join(products.select("product", "name"), "product", "left")


def test_a_malformed_row_while_the_job_runs(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """A row that stops matching the schema fails the query, and the error names its file."""
    write_lines(tmp_path / "products" / "1.json", TEA)
    job = on_sales(job_on(Files(str(tmp_path / "products"), schema=PRODUCT), "batch"), tmp_path)
    write_lines(tmp_path / "sales" / "1.json", {"product": 1})
    assert run_on(headwater_spark, job, tmp_path) == [sold(1, "tea")]
    write_lines(tmp_path / "products" / "1.json", "no json")
    write_lines(tmp_path / "sales" / "2.json", {"product": 1})
    with pytest.raises(HeadwaterError) as failed:
        run_on(headwater_spark, job, tmp_path)
    assert failed.value.evidence["file"] == str(tmp_path / "products" / "1.json")
    write_lines(tmp_path / "products" / "1.json", TEA)
    assert run_on(headwater_spark, job, tmp_path) == [sold(1, "tea")]


def test_files_cannot_be_listed_in_each_batch_without_the_jar(
    headwater_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session of another program, refresh="batch" is refused for files, except in a per-batch job."""
    monkeypatch.setattr(static_plans, "probe", lambda _: False)
    write_lines(tmp_path / "products" / "1.json", TEA)
    job = job_on(Files(str(tmp_path / "products"), schema=PRODUCT), "batch")
    with pytest.raises(JobRefused, match="the static table products cannot be read again in each batch"):
        check_only(headwater_spark, job)
    check_only(headwater_spark, replace(job, per_batch=True))


def test_check_needs_no_files(headwater_spark: SparkSession) -> None:
    """``headwater check`` accepts a job whose source and static table do not exist yet."""
    check_only(headwater_spark, job_on(Files("missing-products", schema=PRODUCT), "batch"))


def test_a_rewind_joins_the_present_table(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The plan of a rewind warns that no earlier rows of a static table are kept."""
    write_lines(tmp_path / "products" / "1.json", TEA)
    job = on_sales(job_on(Files(str(tmp_path / "products"), schema=PRODUCT)), tmp_path)
    for number in range(2):
        write_lines(tmp_path / "sales" / f"{number}.json", {"product": 1})
    run_on(headwater_spark, job, tmp_path)
    plan = plan_rewind(LocalTree(tmp_path / "checkpoint"), to=0)
    assert "the static table products is joined as it is now, not as it was when the batch ran" in plan.warnings


POSTGRES_JOB = """
import os
from headwater import Files, Job, Postgres, Static

def priced(sales, products, prices):
    return sales.join(products, "product", "left").join(prices, "product", "left")

PRICED = Job(
    "priced",
    priced,
    reads={
        "sales": Files("sales", schema="product INT"),
        "products": Static(Postgres(os.environ["SHOP_URL"], "Products")),
        "prices": Static(Postgres(os.environ["SHOP_URL"], "shop.prices"), refresh="batch"),
    },
    writes=Files("out", format="json"),
)
"""


@pytest.mark.slow
def test_postgresql(postgres: PostgresServer, tmp_path: Path) -> None:
    """PostgreSQL is read once at the start, or in each batch. The password is in no record, log or message."""
    postgres.do(
        """CREATE ROLE shop LOGIN PASSWORD 'hidden-word'; CREATE SCHEMA shop; GRANT USAGE ON SCHEMA shop TO shop;
        CREATE TABLE "Products" (product int, name text); CREATE TABLE shop.prices (product int, price numeric(6,2));
        INSERT INTO "Products" VALUES (1, 'tea'); INSERT INTO shop.prices VALUES (1, 2.50);
        GRANT SELECT ON "Products", shop.prices TO shop"""
    )
    url = postgres.url.replace("tester@", "shop:hidden-word@")
    absent = job_on(Postgres(url, "nothing"))
    with pytest.raises(ServiceUnreachable, match="cannot read the table nothing from PostgreSQL") as refused:
        check_services(on_sales(absent, tmp_path))
    (tmp_path / "jobs.py").write_text(POSTGRES_JOB)
    write_lines(tmp_path / "sales" / "1.json", {"product": 1})
    command = [HEADWATER, "run", "jobs.py:PRICED"]
    settings = {**os.environ, "SHOP_URL": url}
    with subprocess.Popen(command, cwd=tmp_path, env=settings, stderr=subprocess.PIPE, text=True) as process:
        try:
            printed = [wait_for_line(process, "batch 0 ")]
            postgres.do("UPDATE \"Products\" SET name = 'green tea'; UPDATE shop.prices SET price = 3")
            write_lines(tmp_path / "sales" / "2.json", {"product": 1})
            printed.append(wait_for_line(process, "batch 1 "))
            process.send_signal(signal.SIGTERM)
            printed.append(process.communicate(timeout=240)[1])
            assert process.returncode == 0, "".join(printed)
        finally:
            process.kill()
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted((row["name"], row["price"]) for row in rows) == [("tea", 2.5), ("tea", 3.0)]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.name == "job.json" and "shop:***@" in file.read_text() for file in files)
    written = b"".join([*(file.read_bytes() for file in files), "".join(printed).encode(), str(refused.value).encode()])
    assert b"hidden-word" not in written


def wait_for_line(process: subprocess.Popen[str], start: str) -> str:
    seen: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        seen.append(line)
        if line.startswith(start):
            return "".join(seen)
    raise AssertionError(f"no line starts with {start!r}:\n{''.join(seen)}")


def test_refresh_is_start_or_batch() -> None:
    """Any other moment to read a table is refused when the job is defined."""
    with pytest.raises(ValueError, match='refresh=\'daily\' is not "start" or "batch"'):
        Static(Files("products"), "daily")  # type: ignore[arg-type]


def test_a_sink_needs_a_key() -> None:
    """A PostgreSQL table without a key can be read, not written."""
    job = replace(job_on(Files("p", schema=PRODUCT)), writes=Postgres("postgresql://h/d", "t"))
    with pytest.raises(JobRefused, match="named cannot upsert rows into t without the columns of a key"):
        check_job(job)
