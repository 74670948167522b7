"""Dead letters of a running job, in a topic, a folder and a table."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_support import Broker
from cli.commands import running
from headwater import Console, Files, Job, Kafka, Rate
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import ChangeRefused, JobFailed, UsageProblem
from headwater.spark.dropped import dead_letters
from headwater.spark.dropped.dead_letters import POSITION_FILE, DeadLetterCollector
from headwater.spark.dropped.store import dead_letter_sink, query_id_of
from headwater.spark.preflight import check_services
from spark import topic_support as topics
from spark.draining import drain_source
from spark.test_late_kafka import MALFORMED, TIMES, VISIT, expected, lines, window_end, windows

TOPIC = "dead-letters-visits"


@pytest.fixture(scope="module")
def job(broker: Broker) -> Job:
    topics.make(broker, TOPIC, 2)
    topics.send(broker, TOPIC, lines(), partitions=2)
    source = Kafka(TOPIC, schema=VISIT, servers=broker.bootstrap, options={"maxOffsetsPerTrigger": "4"})
    return Job("windows", windows, reads=source, writes=Console(), mode="update", trigger="available-now")


@pytest.fixture(scope="module")
def drained(headwater_spark, job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that saved no dead letters."""
    checkpoint = tmp_path_factory.mktemp("drained") / "checkpoint"
    drain_source(headwater_spark, job, checkpoint)
    return checkpoint


@pytest.fixture
def checkpoint(drained: Path, tmp_path: Path) -> Path:
    """A copy of that checkpoint, to be changed."""
    return Path(shutil.copytree(drained, tmp_path / "checkpoint"))


def positions() -> set[str]:
    """Return the positions of the dropped records, as computed by the tests of ``late``."""
    late = [position for positions in expected(window_end).values() for position in positions]
    malformed = [(index % 2, batch * 2 + index // 2) for batch, index in MALFORMED]
    return {f"{TOPIC}/{partition}/{offset}" for partition, offset in [*late, *malformed]}


def as_after_a_crash(checkpoint: Path, next_batch: int) -> LocalTree:
    """Return the checkpoint as a crash would leave it: with an old position, and without recorded progress."""
    files = LocalTree(checkpoint)
    files.write(POSITION_FILE, json.dumps({"next_batch": next_batch}).encode())
    (checkpoint / "_headwater" / "progress.jsonl").unlink(missing_ok=True)
    return files


def catch_up(spark: Any, job: Job, files: LocalTree) -> None:
    """Save the dead letters that an earlier run did not get to."""
    assert job.dead_letters is not None
    collector = DeadLetterCollector(spark, job, files, dead_letter_sink(job.dead_letters))
    collector.start()
    collector.close()
    assert collector.problem is None
    assert json.loads(files.read(POSITION_FILE)) == {"next_batch": len(TIMES)}


@pytest.mark.slow
def test_to_a_topic(headwater_spark, broker: Broker, job: Job, tmp_path: Path) -> None:
    """Each dropped record becomes one message, keyed by its position; saved again, it has the same key."""
    uri = f"kafka://{broker.bootstrap}/dead-letters"
    chosen = replace(job, dead_letters=uri)
    check_services(chosen)
    drain_source(headwater_spark, chosen, tmp_path / "checkpoint")
    saved = topics.values(broker, "dead-letters")
    assert len(saved) == len(positions())
    assert {key for key, _ in saved} == positions()
    for key, value in saved:
        record = json.loads(value or "")
        assert key == position_of(record)
        assert record["job"] == "windows"
        assert record["value"] == lines()[record["offset"] * 2 + record["partition"]]
    catch_up(headwater_spark, chosen, as_after_a_crash(tmp_path / "checkpoint", 6))
    again = topics.values(broker, "dead-letters")[len(saved) :]
    assert again == [(key, value) for key, value in saved if json.loads(value or "")["batch_id"] >= 6]
    assert again


def position_of(record: dict[str, Any]) -> str:
    return f"{record['topic']}/{record['partition']}/{record['offset']}"


def saved_to_folder(spark, job: Job, files: LocalTree) -> dict[str, str]:
    """Save the dropped records of all batches to the folder of the job; return its files."""
    files.write(POSITION_FILE, b'{"next_batch": 0}')
    catch_up(spark, job, files)
    return {file.name: file.read_text() for file in Path(str(job.dead_letters).removeprefix("files:")).iterdir()}


def records_of(saved: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for text in saved.values() for line in text.splitlines()]


def test_to_a_folder(headwater_spark, job: Job, checkpoint: Path, tmp_path: Path) -> None:
    """A folder has every record once, even if an earlier run crashed."""
    folder, files = tmp_path / "dead-letters", LocalTree(checkpoint)
    chosen = replace(job, dead_letters=f"files:{folder}")
    saved = saved_to_folder(headwater_spark, chosen, files)
    records = records_of(saved)
    assert {position_of(record) for record in records} == positions()
    assert len(records) == len(positions())
    origin = f"windows-{query_id_of(files)[:8]}-batch-"
    assert set(saved) == {f"{origin}{record['batch_id']:09d}.json" for record in records}

    lost = sorted(saved)[-1]
    (folder / lost).unlink()
    catch_up(headwater_spark, chosen, as_after_a_crash(checkpoint, int(lost[-14:-5])))
    assert {file.name: file.read_text() for file in folder.iterdir()} == saved


@pytest.mark.slow
def test_to_a_table(headwater_spark, job: Job, checkpoint: Path, tmp_path: Path) -> None:
    """A table has the records of the folder, each once."""
    to_folder = replace(job, dead_letters=f"files:{tmp_path / 'dead-letters'}")
    records = records_of(saved_to_folder(headwater_spark, to_folder, LocalTree(checkpoint)))
    to_table = replace(job, dead_letters="table:dropped_visits")
    catch_up(headwater_spark, to_table, as_after_a_crash(checkpoint, 0))
    catch_up(headwater_spark, to_table, as_after_a_crash(checkpoint, 6))
    rows = headwater_spark.table("dropped_visits").collect()
    assert sorted(row["position"] for row in rows) == sorted(positions())
    by_position = {row["position"]: row for row in rows}
    for record in records:
        row = by_position[position_of(record)]
        assert (row["reason"], row["value"], row["detail"]) == (record["reason"], record["value"], record["detail"])
        assert (row["event_time"] is None) == (record["event_time"] is None)


@pytest.mark.slow
def test_a_batch_without_drops_is_not_read_again(headwater_spark, job: Job, tmp_path: Path, monkeypatch) -> None:
    """Only batches for which Spark reports drops are read again, while the job runs and at its start."""
    chosen = replace(job, dead_letters=f"files:{tmp_path / 'dead-letters'}")
    read_again: list[int] = []
    save = DeadLetterCollector._save
    monkeypatch.setattr(DeadLetterCollector, "_save", lambda self, batch: read_again.append(batch) or save(self, batch))
    progress = drain_source(headwater_spark, chosen, tmp_path / "checkpoint")
    dropping = [batch.batch_id for batch in progress if batch.dropped or batch.malformed]
    assert read_again == dropping
    assert 0 < len(dropping) < len(progress)
    LocalTree(tmp_path / "checkpoint").write(POSITION_FILE, b'{"next_batch": 0}')
    catch_up(headwater_spark, chosen, LocalTree(tmp_path / "checkpoint"))
    assert read_again == [*dropping, *dropping]


def test_a_failing_sink_is_retried(headwater_spark, job: Job, checkpoint: Path, tmp_path: Path, monkeypatch) -> None:
    """While the sink fails, the position stays at the batch; there is one warning, and an error at the end."""
    files, folder = LocalTree(checkpoint), tmp_path / "dead-letters"
    folder.write_text("not a folder")
    chosen = replace(job, dead_letters=f"files:{folder}")
    monkeypatch.setattr(dead_letters, "RETRY_INTERVAL_SECONDS", 0.01)
    warnings: list[str] = []
    sink = dead_letter_sink(chosen.dead_letters)
    collector = DeadLetterCollector(headwater_spark, chosen, files, sink, warnings.append)
    collector.start()
    collector.on_batch(ProgressRecord(6, at_ms=0, input_rows=4, dropped=1))
    collector.on_batch(ProgressRecord(30, at_ms=0, input_rows=4))
    collector.close()
    assert isinstance(collector.problem, JobFailed)
    assert "batch 6 could not be saved" in collector.problem.problem
    assert [line.partition(":")[0] for line in warnings] == ["warning"]
    assert json.loads(files.read(POSITION_FILE)) == {"next_batch": 6}
    folder.unlink()
    catch_up(headwater_spark, chosen, as_after_a_crash(checkpoint, 6))
    assert sorted(file.name[-6:-5] for file in folder.iterdir()) == ["6", "7"]


@pytest.mark.slow
def test_a_batch_that_is_no_longer_in_the_log(headwater_spark, job: Job, checkpoint: Path, tmp_path: Path) -> None:
    """Records of a batch that the log no longer has are reported as lost; later ones are saved."""
    files, folder = as_after_a_crash(checkpoint, 4), tmp_path / "dead-letters"
    (checkpoint / "offsets" / "3").unlink()
    chosen = replace(job, dead_letters=f"files:{folder}")
    collector = DeadLetterCollector(headwater_spark, chosen, files, dead_letter_sink(chosen.dead_letters))
    collector.start()
    collector.close()
    assert collector.problem is not None
    assert collector.problem.code == "no-batch"
    assert sorted(file.name[-6:-5] for file in folder.iterdir()) == ["5", "6", "7"]
    assert json.loads(files.read(POSITION_FILE)) == {"next_batch": len(TIMES)}


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("console:", "cannot be saved to console"),
        ("files:dead-letters?format=parquet", "JSON lines, not as parquet"),
    ],
)
def test_unsuitable_sinks(job: Job, uri: str, reason: str) -> None:
    """A sink that cannot hold dead letters is refused before Spark starts."""
    with pytest.raises(UsageProblem, match=reason):
        check_services(replace(job, dead_letters=uri))


def test_a_feedback_loop_is_refused(broker: Broker, job: Job, tmp_path: Path) -> None:
    """A job must not read its own dead letters."""
    with pytest.raises(UsageProblem, match="would read its own dead letters"):
        check_services(replace(job, dead_letters=f"kafka://{broker.bootstrap}/{TOPIC}"))
    with pytest.raises(UsageProblem, match="would read its own dead letters"):
        check_services(replace(job, reads=Files(str(tmp_path)), dead_letters=f"files:{tmp_path}/../{tmp_path.name}"))


def test_a_table_with_other_columns_and_a_source_without_positions(headwater_spark, job: Job, tmp_path: Path) -> None:
    """A table with other columns, and a source whose records cannot be read again, are refused at the start."""
    headwater_spark.createDataFrame([(1,)], "n INT").write.saveAsTable("other_table")
    files = LocalTree(tmp_path)
    with pytest.raises(UsageProblem, match="not a table of dead letters"):
        DeadLetterCollector(headwater_spark, job, files, dead_letter_sink("table:other_table"))
    rates = Job("rates", lambda rows: rows, reads=Rate(), writes=Console())
    with pytest.raises(ChangeRefused, match="rate source have no position"):
        DeadLetterCollector(headwater_spark, rates, files, dead_letter_sink("files:dead-letters"))


@pytest.mark.slow
def test_killed_before_dead_letters_are_saved(headwater_spark, broker: Broker, job: Job, tmp_path: Path) -> None:
    """If a process is killed after a batch and before its dead letters are saved, the next run saves them."""
    topics.make(broker, "dead-letters-killed", 2)
    folder = tmp_path / "dead-letters"
    (tmp_path / "jobs.py").write_text(KILLED.format(bootstrap=broker.bootstrap))
    source = replace(job.reads, topic="dead-letters-killed")
    chosen = replace(job, name="killed", reads=source, dead_letters=f"files:{folder}")
    drain_source(headwater_spark, chosen, tmp_path / "checkpoint")
    assert not folder.exists()

    topics.send(broker, "dead-letters-killed", lines(), partitions=2)
    folder.mkdir()
    origin = f"killed-{query_id_of(LocalTree(tmp_path / 'checkpoint'))[:8]}"
    drafts = [folder / f".{origin}-batch-{number:09d}.json.headwater.tmp" for number in range(12)]
    for draft in drafts:
        os.mkfifo(draft)  # a writer blocks here, because no process reads from it
    arguments = ["run", "jobs.py:KILLED", "--checkpoint", "checkpoint", "--trigger", "available-now"]
    with running(tmp_path, *arguments, "--dead-letters", f"files:{folder}") as process:
        process.wait_for("malformed 1")
        process.wait_for("batch 8")
        process.signal_group(signal.SIGKILL)
    assert all(draft.exists() for draft in drafts)
    for draft in drafts:
        draft.unlink()
    assert list(folder.iterdir()) == []

    drain_source(headwater_spark, chosen, tmp_path / "checkpoint")
    records = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    found = {f"{TOPIC}/{record['partition']}/{record['offset']}" for record in records}
    assert found == positions()
    assert len(records) == len(found)


KILLED = '''
from headwater import Console, Files, Job, Kafka, Rate
from pyspark.sql import functions as F

def windows(visits):
    """Visits per window."""
    watermarked = visits.withWatermark("at", "10 minutes")
    return watermarked.groupBy(F.upper("user"), F.window("at", "5 minutes")).count()

OPTIONS = {{"maxOffsetsPerTrigger": "4"}}
VISITS = Kafka("dead-letters-killed", schema="user STRING, at TIMESTAMP", servers="{bootstrap}", options=OPTIONS)
KILLED = Job("killed", windows, reads=VISITS, writes=Console(), mode="update")
'''
