"""Ten PySpark programs that use Headwater in one line only: their record is enough to rewind them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyspark
import pytest

from broker_support import Broker, run_here
from cli.running import Command
from headwater.checkpoint.lease import live_lease
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import read_job_record, read_progress
from headwater.checkpoint.runs import deployed_changes, read_runs
from headwater.jars.resolve import jar_paths
from sink_support import committed_files
from waiting_support import wait_until

PROGRAMS = Path(__file__).parent / "programs"
ADDED_LINE = "headwater.attach(spark)"
FILES = 3

pytestmark = pytest.mark.services


class Programs:
    """A process that runs programs."""

    def __init__(self, folder: Path) -> None:
        jars = ",".join(str(jar) for jar in jar_paths("spark"))
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("program_runner.py"), jars],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
        self.log = folder / "log"

    def run(self, program: str, *arguments: object) -> None:
        """Run a program to its end, and wait until it has released its lease."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = "\t".join(map(str, [PROGRAMS / f"{program}.py", *arguments]))
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "\n", self.log.read_text()[-5000:]
        checkpoint = LocalTree(Path(str(arguments[0]), "checkpoint"))
        wait_until(lambda: live_lease(checkpoint) is None, "the release of the lease")

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=240)
        self._log.close()


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    started = Programs(tmp_path_factory.mktemp("programs"))
    yield started
    started.stop()


def orders(number: int) -> list[dict[str, Any]]:
    """Return six orders within 30 minutes; the last one repeats the first of the previous file."""
    start = number * 30
    found = [
        {"id": number * 10 + n, "user": "abc"[n % 3], "at": minute(start + n * 5), "amount": (n - 1) * 10}
        for n in range(5)
    ]
    repeated = max(0, number - 1) * 10
    return [*found, {"id": repeated, "user": "a", "at": minute(start + 2), "amount": 7}]


def minute(number: int) -> str:
    return f"2026-03-01T{10 + number // 60:02d}:{number % 60:02d}:00Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with input files, oldest first."""
    for number in range(FILES):
        payments = [
            {"order_id": order["id"], "paid_at": order["at"], "method": "card"}
            for order in orders(max(0, number - 1))
            if order["amount"] > 0
        ]
        for name, rows in (("orders", orders(number)), ("payments", payments)):
            file = tmp_path / name / f"{number}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.utime(file, (1_700_000_000 + number,) * 2)
    (tmp_path / "users.json").write_text('{"user": "a", "city": "Kyiv"}\n{"user": "b", "city": "Oslo"}\n')
    return tmp_path


def output(folder: Path) -> Counter[Any]:
    """Return the rows that the sink has committed, or the files that foreachBatch has written."""
    if not (folder / "out/_spark_metadata").exists():
        return Counter({(path.name, path.read_text()): 1 for path in (folder / "out").glob("*.json")})
    rows: list[Any] = []
    for file in committed_files(folder / "out"):
        if file.stat().st_size:
            function = {".parquet": "read_parquet", ".json": "read_json_auto", ".csv": "read_csv_auto"}[file.suffix]
            rows += duckdb.sql(f"SELECT * FROM {function}('{file}')").fetchall()
    return Counter(rows)


SINKS = {
    "cleaned_orders": "files:{folder}/out?format=parquet",
    "window_totals": "foreach-batch:",
    "closed_windows": "files:{folder}/out?format=parquet",
    "distinct_orders": "files:{folder}/out?format=json",
    "user_visits": "files:{folder}/out?format=parquet",
    "paid_orders": "files:{folder}/out?format=parquet",
    "orders_with_cities": "files:{folder}/out?format=parquet",
    "running_totals": "files:{folder}/out?format=csv",
    "all_movements": "files:{folder}/out?format=parquet",
}
TWO_SOURCES = {"paid_orders", "all_movements"}


def test_there_are_ten_programs_with_one_added_line() -> None:
    """Each program mentions Headwater in its import and in one call."""
    files = sorted(PROGRAMS.glob("*.py"))
    assert [file.stem for file in files] == sorted([*SINKS, "forwarded_orders"])
    for file in files:
        named = [line for line in file.read_text().splitlines() if "headwater" in line]
        assert named == ["import headwater", ADDED_LINE]


# One without state, one with two sources, and one for each kind of sink that `rewind` treats in its own way.
IN_EVERY_RUN = ("cleaned_orders", "window_totals", "paid_orders")


@pytest.mark.parametrize(
    "program", [one if one in IN_EVERY_RUN else pytest.param(one, marks=pytest.mark.slow) for one in SINKS]
)
def test_a_program_is_rewound_through_its_record(
    programs: Programs, folder: Path, command: Command, program: str
) -> None:
    """After a rewind, which needs no option about the sink, the program gives what it gave without interruption."""
    programs.run(program, folder)
    checkpoint, complete = folder / "checkpoint", output(folder)
    assert complete

    files = LocalTree(checkpoint)
    record = read_job_record(files)
    assert record.sink == SINKS[program].format(folder=folder)
    assert record.mode == ("update" if program == "window_totals" else "append")
    folders = ["orders", "payments"] if program in TWO_SOURCES else ["orders"]
    options = ("&pathGlobFilter=*.json" if program == "cleaned_orders" else "") + "&maxFilesPerTrigger=1"
    assert list(record.inputs.values()) == [f"files:{folder}/{name}?format=json{options}" for name in folders]
    batches = [json.loads(line) for line in command("log", checkpoint, "--json").out.splitlines()]
    assert [sum(source["rows"] for source in batch["sources"]) for batch in batches[:FILES]] == [
        progress.input_rows for progress in list(read_progress(files).values())[:FILES]
    ]
    # Spark counts rows after the filters that it has pushed into the reader.
    assert batches[1]["sources"][0]["rows"] == (4 if program == "cleaned_orders" else 6)

    done = command("rewind", checkpoint, "--to", 0, "--yes")
    assert done.status == 0, done.err
    kept = output(folder)
    if program != "window_totals":
        assert kept != complete
        assert kept <= complete
    programs.run(program, folder)
    assert output(folder) == complete
    first, again = read_runs(files)
    assert (first.next_batch, again.next_batch, deployed_changes(first, again)) == (0, 1, [])
    assert first.code is not None and first.spark == again.spark == pyspark.__version__
    assert command("fsck", checkpoint, "--strict").status == 0
    if program == "paid_orders":
        last = list(read_progress(files).values())[-1]
        assert [(one.source, one.column, one.delay_ms) for one in last.watermarks] == [
            ("0", "at", 3_600_000),
            ("1", "paid_at", 3_600_000),
        ]


def test_a_program_between_topics(programs: Programs, folder: Path, command: Command, broker: Broker) -> None:
    """A rewind checks the recorded broker for the input, and warns that consumers will see the redone rows again."""
    topic = "attached-orders"
    lines = [json.dumps(order) for number in range(FILES) for order in orders(number)[:2]]
    for name in (topic, f"{topic}-forwarded"):
        assert run_here("topics", "create", name, *broker.arguments).returncode == 0
    broker.produce(topic, *lines)

    programs.run("forwarded_orders", folder, broker.bootstrap, topic)
    checkpoint = folder / "checkpoint"
    record = read_job_record(LocalTree(checkpoint))
    assert record.job == "forwarded-orders"
    assert record.source == f"kafka://{broker.bootstrap}/{topic}"
    assert record.sink == f"kafka://{broker.bootstrap}/{topic}-forwarded"
    assert Counter(consumed(broker, topic, len(lines))) == Counter(lines)

    done = command("rewind", checkpoint, "--to", 0, "--yes", "--json")
    assert done.status == 0, done.err
    plan = json.loads(done.out.splitlines()[0])
    assert [reread["still_there"] for reread in plan["rereads"]] == [True]
    assert any("sent a second time" in warning for warning in plan["warnings"])
    programs.run("forwarded_orders", folder, broker.bootstrap, topic)
    assert Counter(consumed(broker, topic, len(lines) + 4)) == Counter(lines + lines[2:])


def consumed(broker: Broker, topic: str, count: int) -> list[str]:
    options = ["--from-beginning", "--count", count, "--timeout", 120]
    return run_here("consume", f"{topic}-forwarded", *broker.arguments, *options).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("program", SINKS)
def test_every_batch_can_be_rewound_to(programs: Programs, folder: Path, command: Command, program: str) -> None:
    """A program gives the same output after a rewind to any of its batches, and after one to its start."""
    programs.run(program, folder)
    complete = output(folder)
    for batch in range(FILES):
        done = command("rewind", folder / "checkpoint", "--redo", batch, "--yes")
        assert done.status == 0, done.err
        programs.run(program, folder)
        assert output(folder) == complete


def test_a_stopped_session_releases_its_leases(programs: Programs, folder: Path) -> None:
    """Spark does not report the end of queries in a stopped session; their leases are released nevertheless."""
    programs.run("../stopped_session", folder)


def test_sessions_of_one_process_are_attached_to_in_turn(programs: Programs, folder: Path) -> None:
    """A session can be attached to again, and so can the next one: a stopped session gives its port back."""
    programs.run("../attached_again", folder)
