"""The class archive with which Spark starts faster."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.jars.java import require_java
from headwater.spark.class_archive import archive_file, make_archive, options_for, remove_orphans
from headwater.spark.session import OWN_JAR, own_class_path


def test_one_for_each_java_and_set_of_jars(tmp_path: Path) -> None:
    """Whatever could keep it from fitting gives it another name."""
    java, jar = require_java(), tmp_path / "a.jar"
    jar.write_bytes(b"1")
    found = [archive_file(java, [str(jar)]), archive_file(java, [str(OWN_JAR), str(jar)])]
    found.append(archive_file(replace(java, version="99"), [str(jar)]))
    jar.write_bytes(b"12")
    found.append(archive_file(java, [str(jar)]))
    assert len(set(found)) == 4


def test_a_jvm_for_which_it_does_not_fit_starts_without_it(tmp_path: Path) -> None:
    """An archive that is broken, or another Java's, is no reason to fail or to say anything."""
    broken = tmp_path / "broken.jsa"
    assert options_for(broken) == []
    broken.write_bytes(b"no archive" * 1000)
    told = subprocess.run(
        [require_java().command, *options_for(broken), "-version"], capture_output=True, text=True, check=True
    )
    assert told.stdout == ""
    assert "cds" not in told.stderr.lower()


def test_what_cannot_be_made_is_only_said(tmp_path: Path) -> None:
    """A cache that cannot be written costs some seconds at every start, and nothing else."""
    (tmp_path / "file").write_text("")
    said: list[str] = []
    make_archive(tmp_path / "file" / "archive.jsa", [], on_work=said.append)
    assert len(said) == 2


def test_archives_of_environments_that_are_gone_are_removed(tmp_path: Path) -> None:
    """Each has 160 MB, and an upgrade of Spark or of an environment leaves one behind."""
    for name, place in (("here", tmp_path), ("gone", tmp_path / "no such environment")):
        (tmp_path / f"{name}.jsa").write_bytes(b"")
        (tmp_path / f"{name}.json").write_text(json.dumps([str(place)]))
    remove_orphans(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.jsa", "here.json"]


def test_spark_is_started_with_it(headwater_spark: SparkSession) -> None:
    """``headwater jars`` makes it where the Java can, and the session of these tests then uses it."""
    archive = archive_file(require_java(), own_class_path())
    assert headwater_spark._jvm is not None
    running = headwater_spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert (f"-XX:SharedArchiveFile={archive}" in list(running.getInputArguments())) is archive.exists()
