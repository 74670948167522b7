"""The class that writes checkpoint files without shell commands: ``FileSystemBasedCheckpointFileManager``.

Spark's default manager runs a shell command for each permission change on a local disk. Its stricter rename protects
against a second writer; Headwater's lease does that here.

Seen on: PySpark 4.0.5, 4.1.4, 4.2.0, 4.3.0.
Without it: Spark's default manager writes the files, and a small batch takes about 100 ms longer.
"""

from __future__ import annotations

import zipfile
from functools import cache
from typing import TYPE_CHECKING

from headwater.jars.versions import pyspark_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS = "FileSystemBasedCheckpointFileManager"
STREAMING = "org.apache.spark.sql.execution.streaming"
NAMES = (f"{STREAMING}.checkpointing.{CLASS}", f"{STREAMING}.{CLASS}")  # the second one on Spark 4.0


def probe(spark: SparkSession) -> bool:
    from headwater.spark.internals.gateway import first_class  # noqa: PLC0415

    return first_class(spark, NAMES) is not None


@cache
def file_manager_class() -> str | None:
    """Return the name of the class in the installed PySpark, before a JVM runs; None if its jars do not have it."""
    for jar in (pyspark_folder() / "jars").glob("spark-sql_2*.jar"):
        with zipfile.ZipFile(jar) as archive:
            held = set(archive.namelist())
        for name in NAMES:
            if f"{name.replace('.', '/')}.class" in held:
                return name
    return None
