"""Runs programs one after another in one session of plain PySpark, because starting a JVM for each takes longer than the test.

Reads lines with a program and its arguments, and answers each with one line: the exception, or nothing.
"""

from __future__ import annotations

import os
import runpy
import sys

from pyspark.sql import SparkSession


def main(jars: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", os.path.abspath("warehouse"))  # noqa: PTH100  a plain program
        .getOrCreate()
    )
    for line in sys.stdin:
        program, *arguments = line.rstrip("\n").split("\t")
        sys.argv = [program, *arguments]
        try:
            runpy.run_path(program, run_name="__main__")
        except Exception as error:
            answers.write(f"{type(error).__name__}: {error}".replace("\n", " "))
        answers.write("\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
