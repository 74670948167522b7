"""The versions of jars that match the installed PySpark."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path

from headwater.core.errors import SetupProblem

# The newest connector of each Spark that the public repositories have. Spark 4.3 has none of its own there, and runs
# with that of 4.2.
KAFKA_CONNECTORS = {"4.0": "4.0.2", "4.1": "4.1.2", "4.2": "4.2.0", "4.3": "4.2.0"}
# The Hadoop that each Spark comes with: its S3 client has to be of the same version.
HADOOPS = {"4.0": "3.4.1", "4.1": "3.4.2", "4.2": "3.5.0", "4.3": "3.5.0"}
# The table formats are built against one Spark each, and fail on another. A Spark that is missing has no release yet.
TABLE_FORMATS = {
    "delta": {"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"},
    "iceberg": {"4.0": "1.11.0", "4.1": "1.12.0"},
}
TABLE_FORMAT_NAMES = {"delta": "Delta", "iceberg": "Iceberg"}


def pyspark_folder() -> Path:
    """Return the folder of the installed PySpark, without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupProblem("pyspark-missing", "PySpark is not installed", remedy="pip install 'headwater[spark]'")
    return Path(next(iter(spec.submodule_search_locations)))


def spark_version() -> str:
    """Return the major and minor version of the installed PySpark, such as 4.2."""
    pyspark_folder()
    return ".".join(importlib.metadata.version("pyspark").split(".")[:2])


def kafka_package() -> str:
    """Return the coordinates of the Kafka connector for the installed PySpark, as ``spark-submit --packages`` takes them."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{ivy_variables()['kafka.connector']}"


def ivy_variables() -> dict[str, str]:
    """Return the values of the variables in ``ivy.xml``."""
    version = spark_version()
    if version not in KAFKA_CONNECTORS:
        raise SetupProblem(
            "pyspark-version",
            "Headwater runs jobs on PySpark 4.0 to 4.3",
            evidence={"installed": importlib.metadata.version("pyspark")},
            remedy="pip install 'headwater[spark]'",
        )
    formats = {name: releases[version] for name, releases in TABLE_FORMATS.items() if version in releases}
    return {
        "spark.version": version,
        "kafka.connector": KAFKA_CONNECTORS[version],
        "hadoop": HADOOPS[version],
    } | formats


def has_release(configuration: str) -> bool:
    """Return whether the installed PySpark can have these jars: False only for a table format without a release."""
    return configuration not in TABLE_FORMATS or spark_version() in TABLE_FORMATS[configuration]


def require_table_format(configuration: str) -> None:
    """Raise ``SetupProblem`` if a table format has no release for the installed PySpark. Other jars pass."""
    if has_release(configuration):
        return
    releases = TABLE_FORMATS[configuration]
    name, newest = TABLE_FORMAT_NAMES[configuration], max(releases)
    raise SetupProblem(
        "no-delta" if configuration == "delta" else "no-iceberg",
        f"{name} has no release for PySpark {spark_version()}",
        evidence={"installed": importlib.metadata.version("pyspark"), "released for": ", ".join(releases)},
        remedy=f"pip install 'pyspark=={newest}.*'",
    )


def maven_coordinates(configuration: str) -> str:
    """Return a table format's Maven coordinates for the installed PySpark, as ``spark.jars.packages`` takes them."""
    version = spark_version()
    group, artifact = {
        "delta": ("io.delta", f"delta-spark_{version}_2.13"),
        "iceberg": ("org.apache.iceberg", f"iceberg-spark-runtime-{version}_2.13"),
    }[configuration]
    return f"{group}:{artifact}:{TABLE_FORMATS[configuration].get(version, '')}"
