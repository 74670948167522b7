"""``headwater run --dead-letters``, ``replay`` and ``late`` on a topic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import Broker
from cli.commands import assert_no_stack_trace
from cli.one_process import SHARE_SESSION, run_all
from cli.running import Ran
from spark import topic_support as topics

JOBS = '''
import time
from headwater import Console, Job, Kafka
from pyspark.sql import functions as F

VISITS = Kafka("cli-late", schema="user STRING, at TIMESTAMP", servers="{bootstrap}", options={{"maxOffsetsPerTrigger": "2"}})

def per_window(visits, *, window: str = "5 minutes"):
    """Visits per window."""
    return visits.withWatermark("at", "10 minutes").groupBy(F.window("at", window)).count()

def twice(visits):
    """Visits per window, each counted twice."""
    return per_window(visits).withColumn("count", F.col("count") * 2).withColumn("asked", F.lit(time.time() > 0))

def per_user(visits):
    """Visits per user: another state."""
    return visits.groupBy("user").count()

WINDOWS = Job("windows", per_window, reads=VISITS, writes=Console(), mode="update")
SAME = Job("same", per_window, reads=VISITS, writes=Console(), mode="update")
TWICE = Job("twice", twice, reads=VISITS, writes=Console(), mode="update")
USERS = Job("users", per_user, reads=VISITS, writes=Console(), mode="update")
'''

# Two per batch, except the last one. The fourth batch drops records by the watermark of the third.
TIMES = ["10:00", "10:01", "10:40", "10:39", "10:41", "10:42", "10:00", "10:31", "oops"]


def visit(at: str) -> str:
    return json.dumps({"user": "ann", "at": f"2024-03-01T{at}:00Z"}) if ":" in at else at


REPLAY = ["replay", "jobs.py:WINDOWS", "windows", "--batch", "2..3"]
COMMANDS = {
    "replay": [*REPLAY, "--json"],
    "twice": [*REPLAY, "--against", "jobs.py:TWICE"],
    "no batch": [*REPLAY, "--batch", "77"],
    "bad range": [*REPLAY, "--batch", "4..2"],
    "late": ["late", "windows", "--json"],
    "summary": ["late", "windows", "--summary"],
    "unsaved": ["late", "windows", "--to", "console:"],
}
MORE_COMMANDS = {
    "replay": REPLAY,
    "same": [*REPLAY, "--against", "jobs.py:SAME"],
    "twice": [*REPLAY, "--against", "jobs.py:TWICE", "--json"],
    "other state": [*REPLAY, "--against", "jobs.py:USERS"],
    "from nothing": [*REPLAY, "--against", "jobs.py:USERS", "--from-empty-state"],
    "late": ["late", "windows"],
    "nothing late": ["late", "windows", "--batch", "2", "--json"],
    "summary": ["late", "windows", "--summary", "--json"],
    "saved": ["late", "windows", "--to", "files:saved"],
    "tabled": ["late", "windows", "--to", "table:dropped"],
}


@pytest.fixture(scope="module")
def folder(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the jobs, and a topic with the records."""
    place = tmp_path_factory.mktemp("replay-and-late")
    (place / "jobs.py").write_text(JOBS.format(bootstrap=broker.bootstrap))
    topics.make(broker, "cli-late")
    topics.send(broker, "cli-late", [visit(at) for at in TIMES])
    return place


@pytest.fixture(scope="module")
def answers(broker: Broker, folder: Path) -> dict[str, Ran]:
    letters = ["--dead-letters", f"kafka://{broker.bootstrap}/cli-letters"]
    run = ["run", "jobs.py:WINDOWS", "--trigger", "available-now", *letters]
    newer = ["produce", "cli-late", "--bootstrap", broker.bootstrap]
    first, *others = COMMANDS.values()
    ran, sent, *results = run_all(folder, run, newer, first, SHARE_SESSION, *others, stdin=visit("10:45") + "\n")
    assert (ran.status, sent.status) == (0, 0), ran.err + sent.err
    return dict(zip(COMMANDS, results, strict=True))


@pytest.fixture(scope="module")
def more_answers(answers: dict[str, Ran], folder: Path) -> dict[str, Ran]:
    return dict(zip(MORE_COMMANDS, run_all(folder, SHARE_SESSION, *MORE_COMMANDS.values()), strict=True))


def objects(ran: Ran) -> list[dict[str, object]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def row(start: str, end: str, count: int) -> dict[str, object]:
    window = {"start": f"2024-03-01T{start}:00.000Z", "end": f"2024-03-01T{end}:00.000Z"}
    return {"window": window, "count": count}


def test_replay(answers: dict[str, Ran]) -> None:
    """Each batch is printed as an object with its rows; newer records are not included."""
    assert objects(answers["replay"]) == [
        {"batch_id": 2, "rows": [row("10:40", "10:45", 3)]},
        {"batch_id": 3, "rows": [row("10:30", "10:35", 1)]},
    ]
    assert (answers["replay"].status, answers["replay"].err) == (0, "")


def test_against(answers: dict[str, Ran]) -> None:
    """Rows that differ are printed as pairs, and the exit status is 1; a job that reads the clock gets a warning."""
    twice = answers["twice"]
    assert twice.status == 1
    assert twice.err.splitlines() == [
        "warning: twice uses time.time(), whose result can differ from run to run",
        "2 of 2 batches differ",
    ]
    assert [line.partition("{")[0] for line in twice.out.splitlines()] == [
        "batch 2: rows differ", "  ~ ", "    ", "batch 3: rows differ", "  ~ ", "    ",
    ]  # fmt: skip


@pytest.mark.slow
def test_another_state(more_answers: dict[str, Ran]) -> None:
    """State with another schema is refused with a remedy."""
    refused = more_answers["other state"]
    assert refused.status == 15
    assert refused.err.startswith("error[state-incompatible]: users cannot resume from the recorded state")
    assert refused.err.rstrip().endswith(
        "help: add --from-empty-state: both jobs then start from empty state at the first batch"
    )
    assert_no_stack_trace(refused.err)


def test_mistakes(answers: dict[str, Ran]) -> None:
    """A missing batch, a reversed range and a sink that cannot save records are refused with a short message."""
    assert answers["no batch"].status == 15
    assert answers["no batch"].err.startswith("error[no-batch]: the log does not contain the offsets of batch 77\n")
    assert answers["bad range"].status == 2
    assert answers["unsaved"].status == 2
    for name in ("no batch", "bad range", "unsaved"):
        assert answers[name].out == ""
        assert_no_stack_trace(answers[name].err)


def test_late(answers: dict[str, Ran], broker: Broker) -> None:
    """The dropped records are exactly those that the run saved as dead letters."""
    found = objects(answers["late"])
    promised = ("batch_id", "reason", "kind", "topic", "partition", "offset", "value", "event_time", "watermark")
    assert [[one[name] for name in promised] for one in found] == [
        [3, "late", "kafka", "cli-late", 0, 6, visit("10:00"), "2024-03-01T10:00:00.000Z", "2024-03-01T10:30:00.000Z"],
        [4, "malformed", "kafka", "cli-late", 0, 8, "oops", None, None],
    ]
    letters = [json.loads(value or "") for _, value in topics.values(broker, "cli-letters")]
    assert letters == [{"job": "windows", **one} for one in found]


def test_summary(answers: dict[str, Ran]) -> None:
    """The summary has counts per batch and reason, and the delay that would have kept nearly all late records."""
    assert answers["summary"].out.splitlines() == ["batch 3  1 late: 1 by up to 1 h", "batch 4  1 malformed"]
    assert answers["summary"].err.splitlines() == [
        "1 late, 1 malformed",
        "a watermark delay of 35 minutes 1 second instead of 10 minutes would have kept 99% of the late records",
    ]


@pytest.mark.slow
def test_other_formats(answers: dict[str, Ran], more_answers: dict[str, Ran], folder: Path) -> None:
    """The same results are available as text and as JSON, can be saved, and can start from empty state."""
    more = more_answers
    shown = more["replay"].out.splitlines()
    assert shown[::2] == ["batch 2: 1 row", "batch 3: 1 row"]
    assert json.loads(shown[1]) == row("10:40", "10:45", 3)
    assert (more["same"].status, more["same"].err) == (0, "2 batches, same rows\n")
    assert more["same"].out.splitlines() == ["batch 2: same rows", "batch 3: same rows"]
    before, after = row("10:40", "10:45", 3), {**row("10:40", "10:45", 6), "asked": True}
    assert more["twice"].status == 1
    assert objects(more["twice"])[0] == {
        "batch_id": 2, "same": False, "only_before": [], "only_after": [], "differ": [{"before": before, "after": after}],
    }  # fmt: skip
    assert more["from nothing"].status == 1
    assert more["from nothing"].err.splitlines()[0] == (
        "both jobs start batch 2 with empty state: earlier batches are not counted"
    )
    assert more["late"].out.splitlines() == [
        "batch 3  late       cli-late[0]@6  window end 2024-03-01T10:05:00.000Z is not after the watermark "
        "2024-03-01T10:30:00.000Z",
        f"  {visit('10:00')}",
        "batch 4  malformed  cli-late[0]@8  not a valid json record",
        "  oops",
    ]
    assert more["late"].err == "1 late, 1 malformed\n"
    assert objects(more["nothing late"]) == []
    assert objects(more["summary"]) == [
        {"batch_id": 3, "reason": "late", "records": 1, "behind": {"up to 1 h": 1}},
        {"batch_id": 4, "reason": "malformed", "records": 1, "behind": {}},
        {"watermark_delay_seconds": 600, "suggested_watermark_delay_seconds": 2101},
    ]
    saved = [
        json.loads(line) for file in sorted((folder / "saved").iterdir()) for line in file.read_text().splitlines()
    ]
    assert saved == [{"job": "windows", **one} for one in objects(answers["late"])]
    assert more["saved"].err == "1 late, 1 malformed, saved to files:saved\n"
    assert more["tabled"].err == "1 late, 1 malformed, saved to table:dropped\n"
