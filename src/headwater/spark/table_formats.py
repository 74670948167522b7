"""What a Spark session needs for Delta and Iceberg tables: settings that it starts with, and the catalogs of Iceberg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from headwater.core.errors import REDACTED, JobRefused, redact_value
from headwater.jars.versions import TABLE_FORMAT_NAMES, maven_coordinates, require_table_format
from headwater.jobs.endpoints import Delta, Iceberg, Sink, Source
from headwater.jobs.job import Job
from headwater.spark.internals.gateway import has_class

EXTENSIONS = "spark.sql.extensions"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
SESSION_CATALOG = "spark.sql.catalog.spark_catalog"
# Delta rebuilds a table's list of files with this many tasks, by default 50, which take longer than a small batch.
SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
ICEBERG_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
CATALOGS = "spark.sql.catalog."


def formats_of(job: Job, dead_letters: str | None = None) -> list[str]:
    """Return the table formats that a job uses. ``dead_letters`` is the URI of a further sink."""
    more = (dead_letters or job.dead_letters or "").partition(":")[0]
    tables = (*job.sources.values(), *(static.table for static in job.statics.values()))
    kinds = {more, job.writes.kind, *(table.kind for table in tables)}
    return [name for name in TABLE_FORMAT_NAMES if name in kinds]


def format_settings(formats: Sequence[str], given: Mapping[str, str], partitions: str | None = None) -> dict[str, str]:
    """Return the settings that a session needs from its start, in addition to or instead of the given ones."""
    if "delta" not in formats:
        return {}
    extensions = [name.strip() for name in given.get(EXTENSIONS, "").split(",") if name.strip()]
    settings = {
        EXTENSIONS: ",".join(dict.fromkeys([*extensions, DELTA_EXTENSION])),
        SESSION_CATALOG: given.get(SESSION_CATALOG, DELTA_CATALOG),
    }
    if partitions is not None and SNAPSHOT_PARTITIONS not in given:
        settings[SNAPSHOT_PARTITIONS] = partitions
    return settings


def require_format(spark: SparkSession, table: Source | Sink) -> None:
    """Refuse a session that cannot use a table. Settings of an Iceberg catalog that it lacks are added."""
    match table:
        case Delta():
            require_table_format("delta")
            _require_delta(spark)
        case Iceberg():
            require_table_format("iceberg")
            _require_iceberg(spark, table)


def _require_delta(spark: SparkSession) -> None:
    extensions = spark.conf.get(EXTENSIONS, None) or ""
    present = {
        "Delta's jars": has_class(spark, DELTA_EXTENSION),
        EXTENSIONS: DELTA_EXTENSION in extensions.split(","),
        SESSION_CATALOG: spark.conf.get(SESSION_CATALOG, None) is not None,
    }
    missing = [name for name, is_there in present.items() if not is_there]
    if not missing:
        return
    settings = {
        "spark.jars.packages": maven_coordinates("delta"),
        **format_settings(["delta"], {EXTENSIONS: extensions}),
    }
    raise JobRefused(
        "delta-session",
        "this Spark session was started without Delta",
        evidence={"missing": ", ".join(missing)},
        remedy="SparkSession.builder" + "".join(f'.config("{name}", "{value}")' for name, value in settings.items()),
    )


def catalog_settings(table: Iceberg) -> dict[str, str]:
    """Return the settings of a table's catalog as Spark names them; empty if the table has none of its own."""
    if not table.catalog:
        return {}
    prefix = CATALOGS + table.catalog_name
    return {prefix: ICEBERG_CATALOG, **{f"{prefix}.{name}": value for name, value in table.absolute_catalog.items()}}


def configured_catalog(table: Iceberg, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a table's catalog in a Spark configuration, without the class, as ``Iceberg`` names them."""
    prefix = f"{CATALOGS}{table.catalog_name}."
    return {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}


def _require_iceberg(spark: SparkSession, table: Iceberg) -> None:
    if not has_class(spark, ICEBERG_CATALOG):
        raise JobRefused(
            "iceberg-session",
            "this Spark session was started without Iceberg",
            evidence={"missing": "Iceberg's jar"},
            remedy=f'SparkSession.builder.config("spark.jars.packages", "{maven_coordinates("iceberg")}")',
        )
    name = CATALOGS + table.catalog_name
    for key, value in catalog_settings(table).items():
        if REDACTED in value:  # as it was recorded: the session has to have it
            continue
        known = spark.conf.get(key, None)
        if known is None:
            spark.conf.set(key, value)
        elif known != value:
            raise JobRefused(
                "catalog",
                f"the catalog {table.catalog_name} is already configured in another way",
                evidence={"setting": key, "session": redact_value(key, known), "table": redact_value(key, value)},
                remedy="give one of the catalogs another name",
            )
    if spark.conf.get(name, None) is None:
        raise unknown_catalog(table)


def unknown_catalog(table: Iceberg) -> JobRefused:
    """Return the refusal of a table whose catalog nothing configures."""
    return JobRefused(
        "catalog",
        f"the Iceberg catalog {table.catalog_name} is not configured",
        evidence={"table": table.table},
        remedy=f"iceberg:{table.table}?catalog.type=hadoop&catalog.warehouse=PATH, or "
        f"--conf {CATALOGS}{table.catalog_name}={ICEBERG_CATALOG} and its settings",
    )
