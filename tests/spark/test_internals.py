"""Uses of Spark's private classes: each is documented and has a probe."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import struct
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.checkpoint.local_tree import LocalTree
from headwater.jars.own_jar import own_jar
from headwater.spark import internals
from headwater.spark.internals import json_parser, query_end
from headwater.spark.internals.state_stores import loaded_stores, unload_stores_of
from headwater.spark.missing import missing_internals, missing_internals_note
from versions_support import SPARK

# The first PySpark that has what a module needs, if it is not 4.0.
SINCE = {"workers": (4, 1), "offline_repartition": (4, 2), "real_time": (4, 3)}
UNTIL = {"delta_commits": (4, 2)}  # Delta has no release for newer ones
MODULES = sorted(found.name for found in pkgutil.iter_modules(internals.__path__))


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"{internals.__name__}.{name}")


@pytest.mark.parametrize("name", MODULES)
def test_each_use_is_documented(name: str) -> None:
    """The docstring names the tested Spark versions and what happens without the internals."""
    text = module_of(name).__doc__ or ""
    assert "Seen on: PySpark" in text
    assert "Without it" in text


@pytest.mark.parametrize("name", MODULES)
def test_this_spark_has_what_each_use_needs(name: str, headwater_spark: SparkSession) -> None:
    """Every probe succeeds on the installed Spark, except for what that version is known to lack."""
    probe = module_of(name).probe
    found = probe(headwater_spark) if inspect.signature(probe).parameters else probe()
    assert found == (SINCE.get(name, (4, 0)) <= SPARK <= UNTIL.get(name, SPARK))


def test_a_run_names_what_it_goes_without(headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, once for each session; no line if nothing is missing."""
    session = headwater_spark.newSession()
    monkeypatch.setattr(json_parser, "probe", lambda spark: False)
    monkeypatch.setattr(query_end, "probe", lambda spark: False)
    line = missing_internals_note(session)
    assert line is not None
    assert line.startswith(f"note: PySpark {SPARK[0]}.{SPARK[1]}: running without Headwater's JSON parser")
    assert line.endswith(" and a stop between two batches")
    assert missing_internals_note(session) is None


@pytest.mark.skipif(SPARK < (4, 1), reason="PySpark 4.0 lacks some")
def test_nothing_is_missing(headwater_spark: SparkSession) -> None:
    """A PySpark with transformWithState on rows has everything."""
    assert missing_internals(headwater_spark) == []


def test_the_parser_works_where_it_is_linked(headwater_spark: SparkSession) -> None:
    """A Spark that has the methods that the parser calls parses a record: the probe may leave that out."""
    assert json_parser.is_linked(headwater_spark)
    assert json_parser.parses_a_record(headwater_spark)


@pytest.mark.parametrize(
    "call",
    [
        ("org/apache/spark/sql/NoSuchClass", "column", "()V"),
        (json_parser.STRUCT, "noSuchMethod", f"()L{json_parser.STRUCT};"),
        (json_parser.BYTES, "isValid", "()I"),
    ],
)
def test_a_parser_that_spark_cannot_link_is_not_used(
    headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, call: tuple[str, str, str]
) -> None:
    """A class or method that is missing, or has other types, is found without running anything."""
    assert not json_parser.is_linked(headwater_spark, [*json_parser.CALLS, call])


def test_a_parser_that_cannot_parse_is_not_used(headwater_spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Spark that was never tried the probe parses a record: a class that does not work there counts as missing."""
    monkeypatch.setattr(json_parser, "_works", {})
    monkeypatch.setattr(json_parser, "TRIED", ())
    monkeypatch.setattr(json_parser, "_parsed", lambda *_, **__: F.lit(None))
    assert not json_parser.probe(headwater_spark)


def test_every_call_of_the_parser_is_checked() -> None:
    """The probe knows exactly the methods of Spark that the class files refer to."""
    with zipfile.ZipFile(own_jar()) as jar:
        classes = [jar.read(f"headwater/sql/{name}.class") for name in ("JsonObjects", "FlatObjects")]
    called = {call for one in classes for call in methods_called_by(one)}
    assert {call for call in called if call[0].startswith("org/apache/spark/")} == set(json_parser.CALLS)


def methods_called_by(class_file: bytes) -> set[tuple[str, str, str]]:
    """Return owner, name and descriptor of the methods in a class file's constant pool."""
    (count,) = struct.unpack_from(">H", class_file, 8)
    pool: dict[int, tuple[int, object]] = {}
    at, index = 10, 1
    while index < count:
        tag = class_file[at]
        if tag == 1:  # a text of a length of its own
            (length,) = struct.unpack_from(">H", class_file, at + 1)
            pool[index] = tag, class_file[at + 3 : at + 3 + length].decode()
            at += 3 + length
        else:
            layout = {3: ">i", 4: ">f", 5: ">q", 6: ">d", 15: ">BH"}.get(
                tag, ">H" if tag in (7, 8, 16, 19, 20) else ">HH"
            )
            pool[index] = tag, struct.unpack_from(layout, class_file, at + 1)
            at += 1 + struct.calcsize(layout)
        index += 2 if tag in (5, 6) else 1  # long and double take two entries

    def text(number: int) -> str:
        tag, held = pool[number]
        return str(held) if tag == 1 else text(held[0])  # type: ignore[index]

    found = set()
    for tag, held in pool.values():
        if tag in (10, 11):  # a method of a class, of an interface
            owner, name_and_type = held  # type: ignore[misc]
            name, descriptor = pool[name_and_type][1]  # type: ignore[misc]
            found.add((text(owner), text(name), text(descriptor)))
    return found


def test_the_stores_of_one_checkpoint_are_unloaded(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """Those of a query that runs on stay, and its next batch finds its state."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0").write_text("a\n")
    trees = [LocalTree(tmp_path / name) for name in ("stopped", "running")]
    queries = [
        headwater_spark.readStream.text(str(folder))
        .groupBy("value")
        .count()
        .writeStream.outputMode("complete")
        .format("memory")
        .queryName(f"unloading_{Path(tree.location).name}")
        .start(checkpointLocation=tree.location)
        for tree in trees
    ]
    try:
        for query in queries:
            query.processAllAvailable()
        queries[0].stop()
        stopped, running = trees
        assert loaded_stores(headwater_spark, running)
        unload_stores_of(headwater_spark, stopped)
        assert not loaded_stores(headwater_spark, stopped)
        assert loaded_stores(headwater_spark, running)
        (folder / "1").write_text("a\n")
        queries[1].processAllAvailable()
        assert [tuple(row) for row in headwater_spark.table("unloading_running").collect()] == [("a", 2)]
    finally:
        for query in queries:
            query.stop()
