"""The class archive, with which Spark starts faster."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.jars.java import require_java
from headwater.jars.own_jar import HEADWATER_JAR
from headwater.spark.class_archive import archive_file, create_archive, options_for, remove_orphans
from headwater.spark.session import local_class_path


def test_one_archive_for_each_java_and_set_of_jars(tmp_path: Path) -> None:
    """The archive has another name for another Java, other jars, or a jar of another size."""
    java, jar = require_java(), tmp_path / "a.jar"
    jar.write_bytes(b"1")
    found = [archive_file(java, [str(jar)]), archive_file(java, [str(HEADWATER_JAR), str(jar)])]
    found.append(archive_file(replace(java, version="99"), [str(jar)]))
    jar.write_bytes(b"12")
    found.append(archive_file(java, [str(jar)]))
    assert len(set(found)) == 4


def test_a_jvm_ignores_an_archive_that_it_cannot_use(tmp_path: Path) -> None:
    """A corrupt archive, or one of another Java, causes neither an error nor a message."""
    corrupt = tmp_path / "corrupt.jsa"
    assert options_for(corrupt) == []
    corrupt.write_bytes(b"no archive" * 1000)
    done = subprocess.run(
        [require_java().command, *options_for(corrupt), "-version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert "cds" not in done.stderr.lower()


def test_a_failure_is_only_reported(tmp_path: Path) -> None:
    """If the cache cannot be written, there is a message and no error: Spark starts without the archive."""
    (tmp_path / "file").write_text("")
    messages: list[str] = []
    create_archive(tmp_path / "file" / "archive.jsa", [], report=messages.append)
    assert len(messages) == 2


def test_archives_of_removed_environments_are_deleted(tmp_path: Path) -> None:
    """An upgrade of Spark or of an environment leaves no unused archive of 160 MB behind."""
    for name, place in (("here", tmp_path), ("gone", tmp_path / "no such environment")):
        (tmp_path / f"{name}.jsa").write_bytes(b"")
        (tmp_path / f"{name}.json").write_text(json.dumps([str(place)]))
    remove_orphans(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here.jsa", "here.json"]


PROGRAM = """
import sys
from pathlib import Path
from headwater.spark.session import start_session
spark = start_session("archive", jars=sys.argv[1:], log=Path("spark.log"))
running = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(*running.getInputArguments(), sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize("jars", [["spark"], ["delta"]])
def test_spark_is_started_with_it(jars: list[str], tmp_path: Path) -> None:
    """Every session uses the archive that ``headwater jars`` creates, also one with the jars of tables."""
    archive = archive_file(require_java(), local_class_path())
    create_archive(archive, local_class_path())
    command = [sys.executable, "-c", PROGRAM, *jars]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"-XX:SharedArchiveFile={archive}" in done.stdout.splitlines()
