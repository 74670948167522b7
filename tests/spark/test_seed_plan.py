"""Plans of seeds, without a JVM and without a broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpus_support import as_memory_files, load
from headwater import Console, Delta, Files, Job, Kafka, Memory, Rate, seed
from headwater.checkpoint.lease import hold_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused, HeadwaterError, JobRefused, UsageProblem
from headwater.spark import seed_plan
from headwater.spark.importing import JobImport, _exported_positions
from headwater.spark.seed_plan import plan_seed
from headwater.spark.seed_request import history_source, named_texts, position_texts, request_of
from headwater.statefiles.reader import StateReader
from headwater.timemachine.transfer import export_tables
from lakehouse.delta_support import Writer

OFFSETS = {"visits": {0: 500, 1: 400}}


def totals(rows: Any) -> Any:
    return rows.groupBy("user").count()


TOTALS = Job("totals", totals, reads=Kafka("visits", schema="user STRING"), writes=Console(), mode="update")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The positions that the broker was asked for."""
    texts: list[str] = []

    def resolve(_: object, topics: list[str], text: str) -> dict[str, dict[int, int]]:
        texts.append(text)
        return dict.fromkeys(topics, OFFSETS["visits"])

    monkeypatch.setattr(seed_plan, "resolve_position", resolve)
    return texts


@pytest.fixture
def history(tmp_path: Path) -> str:
    folder = tmp_path / "history"
    (folder / "_headwater").mkdir(parents=True)
    (folder / "one.json").write_text('{"user": "ann"}\n')
    (folder / "_headwater/two.json").write_text("hidden")
    return f"files:{folder}"


def request(tmp_path: Path, history: str, **changes: Any) -> Any:
    job, at = changes.pop("job", TOTALS), changes.pop("at", "latest")
    return request_of(job, "jobs.py:TOTALS", str(tmp_path / "new"), {"": history}, {"": at}, **changes)


def test_a_plan_has_the_position_and_the_rule(tmp_path: Path, history: str, asked: list[str]) -> None:
    """By offset, the history is everything before the position. By event time, the topic is read from its beginning."""
    plan = plan_seed(request(tmp_path, history))
    (source,) = plan.sources
    assert source.offset == '{"visits":{"0":500,"1":400}}'
    assert (source.files, source.bytes) == (1, 16)
    assert source.rule.startswith("by offset: the history is everything before the position")
    assert plan.aside == f"{tmp_path / 'new'}.output"
    assert len(plan.warnings) == 2
    known = plan_seed(request(tmp_path, history, offset_columns="partition, offset", output="write"))
    assert "by its columns partition and offset" in known.sources[0].rule
    assert known.warnings == ()
    at = "2026-07-01T00:00:00Z"
    by_time = plan_seed(request(tmp_path, history, at=at, by="event-time", event_time="at"))
    assert "history before 2026-07-01T00:00:00.000Z" in by_time.sources[0].rule
    assert asked == ["latest", "latest", "earliest"]


@pytest.mark.parametrize(
    ("changes", "kind", "problem"),
    [
        ({"job": replace(TOTALS, reads=Rate())}, JobRefused, "no positions to continue at"),
        ({"job": replace(TOTALS, reads=Files("in", schema="user STRING"))}, JobRefused, "no positions to continue at"),
        ({"job": replace(TOTALS, per_batch=True)}, JobRefused, "keeps no state"),
        ({"job": replace(TOTALS, writes=Memory("t"))}, JobRefused, "cannot resume"),
        ({"by": "luck"}, UsageProblem, "not a rule"),
        ({"output": "away"}, UsageProblem, "not an output"),
        ({"offset_columns": "one"}, UsageProblem, "does not name two columns"),
        ({"by": "event-time"}, UsageProblem, "needs the column"),
        ({"by": "event-time", "event_time": "at"}, UsageProblem, "needs a time in --at"),
        ({"event_time": "at"}, UsageProblem, "needs --by event-time"),
        ({"job": replace(TOTALS, reads=Kafka("", options={"assign": "{}"}))}, JobRefused, "assign"),
    ],
)
def test_what_cannot_be_seeded_is_refused(
    tmp_path: Path, history: str, asked: list[str], changes: dict[str, Any], kind: type[HeadwaterError], problem: str
) -> None:
    """Before Spark starts, with the reason."""
    with pytest.raises(kind, match=problem):
        plan_seed(request(tmp_path, history, **changes))


def test_places_that_are_taken_are_refused(tmp_path: Path, history: str, asked: list[str]) -> None:
    """An existing checkpoint, a file sink with batches of another query, and a folder without history."""
    (tmp_path / "new/offsets").mkdir(parents=True)
    with pytest.raises(ChangeRefused, match="this one exists"):
        plan_seed(request(tmp_path, history))
    (tmp_path / "new/offsets").rmdir()
    (tmp_path / "out/_spark_metadata").mkdir(parents=True)
    (tmp_path / "out/_spark_metadata/0").write_text("v1")
    job = replace(TOTALS, writes=Files(str(tmp_path / "out")), mode="append")
    with pytest.raises(ChangeRefused, match="batches of another query"):
        plan_seed(request(tmp_path, history, job=job))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ChangeRefused, match="there are no files"):
        plan_seed(request(tmp_path, f"files:{tmp_path / 'nothing'}"))
    with pytest.raises(UsageProblem, match="history cannot be read from kafka"):
        plan_seed(request(tmp_path, "kafka://h:1/old"))


def test_history_is_one_batch(tmp_path: Path) -> None:
    """Limits per batch are dropped, and columnar files have their own schema."""
    limited = request(tmp_path, "files:old?format=parquet&maxFilesPerTrigger=1")
    source = history_source(limited, "")
    assert isinstance(source, Files)
    assert (source.options, source.schema) == ({}, None)
    lines = history_source(request(tmp_path, "files:old"), "")
    assert isinstance(lines, Files)
    assert lines.schema == "user STRING"
    table = history_source(request(tmp_path, "delta:old"), "")
    assert isinstance(table, Delta)
    assert table.options["maxFilesPerTrigger"] == str(2**31 - 1)
    assert history_source(request(tmp_path, "none"), "") is None


def test_options_name_their_sources() -> None:
    """A job with one source needs no name; positions may be dictionaries."""
    named = replace(TOTALS, reads={"rows": Kafka("visits")})
    assert named_texts(["files:a?x=y"], TOTALS) == {"": "files:a?x=y"}
    assert named_texts(["files:a"], named) == {"rows": "files:a"}
    assert named_texts(["rows=none"], named) == {"rows": "none"}
    assert position_texts("latest", named) == {"rows": "latest"}
    assert position_texts({"visits": {0: 5}}, TOTALS) == {"": '{"visits": {"0": 5}}'}
    assert position_texts({"rows": {"visits": {0: 5}}}, named) == {"rows": '{"visits": {"0": 5}}'}


def test_a_delta_table_continues_at_a_version(tmp_path: Path, history: str) -> None:
    """The offset is the one that Spark writes before the first file of a version; versions that are gone are refused."""
    table = Writer(tmp_path / "table")
    for number in range(3):
        table.insert(number)
    job = replace(TOTALS, reads=Delta(str(tmp_path / "table")))
    head = table.head
    (source,) = plan_seed(request(tmp_path, history, job=job, at=str(head))).sources
    assert source.offset is not None
    offset = json.loads(source.offset)
    assert (offset["reservoirVersion"], offset["index"], offset["isStartingVersion"]) == (head, -1, False)
    (latest,) = plan_seed(request(tmp_path, history, job=job, at="latest")).sources
    assert latest.offset is not None
    assert json.loads(latest.offset)["reservoirVersion"] == head + 1
    (by_time,) = plan_seed(request(tmp_path, history, job=job, at="2099-01-01T00:00:00Z")).sources
    assert by_time.offset == latest.offset
    with pytest.raises(ChangeRefused, match="cannot be read from version 77"):
        plan_seed(request(tmp_path, history, job=job, at="77"))
    with pytest.raises(UsageProblem, match="not a position in a Delta table"):
        plan_seed(request(tmp_path, history, job=job, at="soon"))


def test_python_plans_a_seed(tmp_path: Path, history: str, asked: list[str]) -> None:
    """The plan shows itself; nothing is created."""
    plan = seed(TOTALS, history, at=OFFSETS, checkpoint=tmp_path / "new", reason="a new team")
    assert repr(plan).startswith(f"Seed {tmp_path / 'new'} for totals\n  history ")
    assert "a new team" in plan._repr_html_()
    assert json.loads(asked[0]) == {"visits": {"0": 500, "1": 400}}
    assert not (tmp_path / "new").exists()


def test_exported_state_knows_where_its_source_continues() -> None:
    """Kafka's offsets after the batch; a file source has none that another source could use."""
    kafka = as_memory_files("kafka-changelog")
    (table,) = export_tables(StateReader(kafka), 2)
    assert _exported_positions(TOTALS, {"x": table}) == {"": StateReader(kafka).logs.offsets.read(2).sources[0].text}
    files = as_memory_files("aggregation-changelog")
    (table,) = export_tables(StateReader(files), 2)
    assert _exported_positions(TOTALS, {"x": table}) == {}


def test_an_import_fills_a_checkpoint_whose_lease_is_held(tmp_path: Path) -> None:
    """With the rows and the watermark of the export; after an interruption, once more changes nothing."""
    origin = StateReader(as_memory_files("aggregation-changelog"))
    tables = {"exported": export_tables(origin, 4)[0]}
    files = LocalTree(load("aggregation-hdfs", tmp_path).path)
    planned = JobImport(request(tmp_path, "none"), plan=None, tables=tables)  # type: ignore[arg-type]
    with hold_lease(files, "headwater seed", "cannot seed"):
        planned._fill(files)
    filled = StateReader(files)
    last = filled.latest()
    assert sorted(map(str, export_tables(filled, last)[0].to_pylist())) == sorted(
        map(str, tables["exported"].to_pylist())
    )
    watermark = origin.logs.commits.read(4).next_watermark_ms
    assert filled.logs.commits.read(last).next_watermark_ms == watermark
    planned._fill(files)
    assert StateReader(files).latest() == last
