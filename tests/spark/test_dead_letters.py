"""Dropped records that are kept while a job runs: to a topic, a folder and a table, once for each position."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker_support import Broker
from cli.commands import running
from headwater import Console, Files, Job, Kafka, Rate
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import ChangeRefused, JobFailed, UsageProblem
from headwater.spark.dropped import dead_letters
from headwater.spark.dropped.dead_letters import MARK, DeadLetters
from headwater.spark.dropped.store import dead_letter_sink, query_id_of
from headwater.spark.preflight import check_services
from headwater.spark.progress import BatchProgress
from spark import topic_support as topics
from spark.draining import drained
from spark.test_late_kafka import SPOILT, TIMES, VISIT, expected, lines, window_end, windows

TOPIC = "letters-visits"


@pytest.fixture(scope="module")
def job(broker: Broker) -> Job:
    topics.make(broker, TOPIC, 2)
    topics.send(broker, TOPIC, lines(), partitions=2)
    source = Kafka(TOPIC, schema=VISIT, servers=broker.bootstrap, options={"maxOffsetsPerTrigger": "4"})
    return Job("letters", windows, reads=source, writes=Console(), mode="update", trigger="available-now")


def positions() -> set[str]:
    """Where the dropped records lie, by the computation of the tests of ``late``."""
    late = [place for places in expected(window_end).values() for place in places]
    bad = [(place % 2, batch * 2 + place // 2) for batch, place in SPOILT]
    return {f"{TOPIC}/{partition}/{offset}" for partition, offset in [*late, *bad]}


def as_after_a_crash(checkpoint: Path, mark: int) -> LocalTree:
    """The run did not get to say how far it had looked, and did not write down what it heard of the batches."""
    files = LocalTree(checkpoint)
    files.write(MARK, json.dumps({"next_batch": mark}).encode())
    (checkpoint / "_headwater" / "progress.jsonl").unlink(missing_ok=True)
    return files


def caught_up(spark: Any, job: Job, files: LocalTree) -> None:
    assert job.dead_letters is not None
    letters = DeadLetters(spark, job, files, dead_letter_sink(job.dead_letters))
    letters.start()
    letters.close()
    assert letters.problem is None
    assert json.loads(files.read(MARK)) == {"next_batch": len(TIMES)}


def test_to_a_topic(headwater_spark, broker: Broker, job: Job, tmp_path: Path) -> None:
    """Each dropped record is one message with its reason, keyed by its position; saved again it has the same key."""
    uri = f"kafka://{broker.bootstrap}/letters-box"
    chosen = replace(job, dead_letters=uri)
    check_services(chosen)
    drained(headwater_spark, chosen, tmp_path / "checkpoint")
    saved = topics.values(broker, "letters-box")
    assert len(saved) == len(positions())
    assert {key for key, _ in saved} == positions()
    for key, value in saved:
        letter = json.loads(value or "")
        assert key == f"{letter['topic']}/{letter['partition']}/{letter['offset']}"
        assert letter["job"] == "letters"
        assert letter["value"] == lines()[letter["offset"] * 2 + letter["partition"]]
    caught_up(headwater_spark, chosen, as_after_a_crash(tmp_path / "checkpoint", 6))
    again = topics.values(broker, "letters-box")[len(saved) :]
    assert again == [(key, value) for key, value in saved if json.loads(value or "")["batch_id"] >= 6]
    assert again


def test_to_a_folder_and_to_a_table(headwater_spark, job: Job, tmp_path: Path) -> None:
    """A folder and a table have every record once, also when a run that died half-way is caught up."""
    chosen = replace(job, dead_letters=f"files:{tmp_path / 'box'}")
    drained(headwater_spark, chosen, tmp_path / "checkpoint")
    files = LocalTree(tmp_path / "checkpoint")
    saved = {file.name: file.read_text() for file in (tmp_path / "box").iterdir()}
    letters = [json.loads(line) for text in saved.values() for line in text.splitlines()]
    assert {f"{one['topic']}/{one['partition']}/{one['offset']}" for one in letters} == positions()
    assert len(letters) == len(positions())
    origin = f"letters-{query_id_of(files)[:8]}-batch-"
    assert set(saved) == {f"{origin}{one['batch_id']:09d}.json" for one in letters}

    lost = sorted(saved)[-1]
    (tmp_path / "box" / lost).unlink()
    caught_up(headwater_spark, chosen, as_after_a_crash(tmp_path / "checkpoint", int(lost[-14:-5])))
    assert {file.name: file.read_text() for file in (tmp_path / "box").iterdir()} == saved

    tabled = replace(job, dead_letters="table:dropped_visits")
    as_after_a_crash(tmp_path / "checkpoint", 0)
    caught_up(headwater_spark, tabled, files)
    caught_up(headwater_spark, tabled, as_after_a_crash(tmp_path / "checkpoint", 6))
    rows = headwater_spark.table("dropped_visits").collect()
    assert sorted(row["position"] for row in rows) == sorted(positions())
    by_position = {row["position"]: row for row in rows}
    for one in letters:
        row = by_position[f"{one['topic']}/{one['partition']}/{one['offset']}"]
        assert (row["reason"], row["value"], row["detail"]) == (one["reason"], one["value"], one["detail"])
        assert (row["event_time"] is None) == (one["event_time"] is None)


def test_a_clean_batch_is_not_read_again(headwater_spark, job: Job, tmp_path: Path, monkeypatch) -> None:
    """Nothing is read again but the batches of which Spark reports drops, neither while the job runs nor at its start."""
    chosen = replace(job, dead_letters=f"files:{tmp_path / 'box'}")
    looked_at: list[int] = []
    save = DeadLetters._save
    monkeypatch.setattr(DeadLetters, "_save", lambda self, batch: looked_at.append(batch) or save(self, batch))
    progress = drained(headwater_spark, chosen, tmp_path / "checkpoint")
    dropping = [one.batch_id for one in progress if one.dropped or one.malformed]
    assert looked_at == dropping
    assert 0 < len(dropping) < len(progress)
    LocalTree(tmp_path / "checkpoint").write(MARK, b'{"next_batch": 0}')
    caught_up(headwater_spark, chosen, LocalTree(tmp_path / "checkpoint"))
    assert looked_at == [*dropping, *dropping]


def heard(number: int, dropped: int) -> BatchProgress:
    return BatchProgress(number, 4, 1.0, 1, None, 0, 0, dropped, 0, {})


def test_what_cannot_be_kept_stays_to_be_kept(headwater_spark, job: Job, tmp_path: Path, monkeypatch) -> None:
    """While a sink fails the mark stays before the batch, however many follow; the failure is told once, and at the end."""
    drained(headwater_spark, job, tmp_path / "checkpoint")
    files = LocalTree(tmp_path / "checkpoint")
    (tmp_path / "box").write_text("no folder")
    chosen = replace(job, dead_letters=f"files:{tmp_path / 'box'}")
    monkeypatch.setattr(dead_letters, "RETRY_EVERY_SECONDS", 0.01)
    told: list[str] = []
    letters = DeadLetters(headwater_spark, chosen, files, dead_letter_sink(chosen.dead_letters), told.append)
    letters.start()
    letters.on_batch(heard(6, dropped=1))
    letters.on_batch(heard(30, dropped=0))
    letters.close()
    assert isinstance(letters.problem, JobFailed)
    assert "batch 6 could not be kept" in letters.problem.problem
    assert [line.partition(":")[0] for line in told] == ["warning"]
    assert json.loads(files.read(MARK)) == {"next_batch": 6}
    (tmp_path / "box").unlink()
    caught_up(headwater_spark, chosen, as_after_a_crash(tmp_path / "checkpoint", 6))
    assert sorted(file.name[-6:-5] for file in (tmp_path / "box").iterdir()) == ["6", "7"]


@pytest.mark.slow
def test_a_batch_that_the_log_forgot_is_given_up(headwater_spark, job: Job, tmp_path: Path) -> None:
    """Records of a batch that is no longer in the log are told to be lost, and later ones are kept."""
    drained(headwater_spark, job, tmp_path / "checkpoint")
    files = as_after_a_crash(tmp_path / "checkpoint", 4)
    (tmp_path / "checkpoint" / "offsets" / "3").unlink()
    chosen = replace(job, dead_letters=f"files:{tmp_path / 'box'}")
    letters = DeadLetters(headwater_spark, chosen, files, dead_letter_sink(chosen.dead_letters))
    letters.start()
    letters.close()
    assert letters.problem is not None
    assert letters.problem.code == "no-batch"
    assert sorted(file.name[-6:-5] for file in (tmp_path / "box").iterdir()) == ["5", "6", "7"]
    assert json.loads(files.read(MARK)) == {"next_batch": len(TIMES)}


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("console:", "cannot be kept in console"),
        ("files:box?format=parquet", "lines of JSON, not as parquet"),
    ],
)
def test_places_that_cannot_keep_them(job: Job, uri: str, reason: str) -> None:
    """What cannot keep records is refused before Spark starts."""
    with pytest.raises(UsageProblem, match=reason):
        check_services(replace(job, dead_letters=uri))


def test_a_circle_is_refused(broker: Broker, job: Job, tmp_path: Path) -> None:
    """A job does not get its own dead letters to read."""
    with pytest.raises(UsageProblem, match="would read its own dead letters"):
        check_services(replace(job, dead_letters=f"kafka://{broker.bootstrap}/{TOPIC}"))
    with pytest.raises(UsageProblem, match="would read its own dead letters"):
        check_services(replace(job, reads=Files(str(tmp_path)), dead_letters=f"files:{tmp_path}/../{tmp_path.name}"))


def test_a_table_of_something_else_and_a_source_without_positions(headwater_spark, job: Job, tmp_path: Path) -> None:
    """A table with other columns, and a source whose records cannot be found again, are refused at the start."""
    headwater_spark.createDataFrame([(1,)], "n INT").write.saveAsTable("not_letters")
    files = LocalTree(tmp_path)
    with pytest.raises(UsageProblem, match="no table of dropped records"):
        DeadLetters(headwater_spark, job, files, dead_letter_sink("table:not_letters"))
    rates = Job("rates", lambda rows: rows, reads=Rate(), writes=Console())
    with pytest.raises(ChangeRefused, match="rate source have no position"):
        DeadLetters(headwater_spark, rates, files, dead_letter_sink("files:box"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_between_the_batch_and_its_letters(headwater_spark, broker: Broker, job: Job, tmp_path: Path) -> None:
    """A process that is killed after a batch and before its letters are written leaves them to the next run."""
    topics.make(broker, "letters-killed", 2)
    (tmp_path / "jobs.py").write_text(KILLED.format(bootstrap=broker.bootstrap))
    source = replace(job.reads, topic="letters-killed")
    chosen = replace(job, name="killed", reads=source, dead_letters=f"files:{tmp_path / 'box'}")
    drained(headwater_spark, chosen, tmp_path / "checkpoint")
    assert not (tmp_path / "box").exists()

    topics.send(broker, "letters-killed", lines(), partitions=2)
    (tmp_path / "box").mkdir()
    origin = f"killed-{query_id_of(LocalTree(tmp_path / 'checkpoint'))[:8]}"
    drafts = [tmp_path / "box" / f".{origin}-batch-{number:09d}.json.headwater.tmp" for number in range(12)]
    for draft in drafts:
        os.mkfifo(draft)  # whoever opens one to write waits for a reader that never comes
    words = ["run", "jobs.py:KILLED", "--checkpoint", "checkpoint", "--trigger", "available-now"]
    with running(tmp_path, *words, "--dead-letters", f"files:{tmp_path / 'box'}") as process:
        process.wait_for("malformed 1")
        process.wait_for("batch 8")
        process.signal_group(signal.SIGKILL)
    assert all(draft.exists() for draft in drafts)
    for draft in drafts:
        draft.unlink()
    assert list((tmp_path / "box").iterdir()) == []

    drained(headwater_spark, chosen, tmp_path / "checkpoint")
    letters = [json.loads(line) for file in (tmp_path / "box").iterdir() for line in file.read_text().splitlines()]
    found = {f"{TOPIC}/{one['partition']}/{one['offset']}" for one in letters}
    assert found == positions()
    assert len(letters) == len(found)


KILLED = '''
from headwater import Console, Files, Job, Kafka, Rate
from pyspark.sql import functions as F

def windows(visits):
    """Visits per window."""
    marked = visits.withWatermark("at", "10 minutes")
    return marked.groupBy(F.upper("user"), F.window("at", "5 minutes")).count()

OPTIONS = {{"maxOffsetsPerTrigger": "4"}}
VISITS = Kafka("letters-killed", schema="user STRING, at TIMESTAMP", servers="{bootstrap}", options=OPTIONS)
KILLED = Job("killed", windows, reads=VISITS, writes=Console(), mode="update")
'''
