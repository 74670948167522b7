"""PostgreSQL upserts on a real server: each batch exactly once, even if the process is killed before the commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from broker_support import HEADWATER, free_port
from headwater import Files, Job, Postgres
from headwater.checkpoint.local_tree import LocalTree
from headwater.core.errors import JobRefused, ServiceUnreachable
from headwater.spark.preflight import check_services
from headwater.timemachine.change import Change
from headwater.timemachine.journal import write_entry
from postgres_support import PostgresServer

SCHEMA = "user STRING, at TIMESTAMP, amount INT"


def per_hour(rows: DataFrame) -> DataFrame:
    """Amount per user and hour."""
    windows = rows.withWatermark("at", "1 hour").groupBy("user", F.window("at", "1 hour"))
    return windows.agg(F.sum("amount").alias("amount"))


def latest(rows: DataFrame) -> DataFrame:
    """The rows with an additional array column."""
    return rows.select("user", "at", "amount", F.array("amount").alias("list"))


def names_in_array(rows: DataFrame) -> DataFrame:
    """The users in an array and in a map."""
    return rows.select("amount", F.array("user").alias("names"), F.create_map("user", "user").alias("by_name"))


class Shop:
    """A folder of purchases, and the totals that they add up to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.purchases: list[dict[str, object]] = []
        self.files = 0

    def sell(self, *purchases: tuple[str, str, int]) -> None:
        rows = [{"user": user, "at": f"2024-03-01T{at}:00Z", "amount": amount} for user, at, amount in purchases]
        self.purchases += rows
        self.files += 1
        file = self.folder / f"{self.files}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + self.files,) * 2)

    def per_hour(self) -> list[tuple[str, str, int]]:
        totals: dict[tuple[str, str], int] = {}
        for row in self.purchases:
            place = (str(row["user"]), str(row["at"])[11:13])
            totals[place] = totals.get(place, 0) + int(str(row["amount"]))
        return sorted((user, hour, amount) for (user, hour), amount in totals.items())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "in")


def job_into(server: PostgresServer, shop: Shop, table: str, mode: str = "update") -> Job:
    source = Files(str(shop.folder), schema=SCHEMA, options={"maxFilesPerTrigger": "1"})
    sink = Postgres(server.url, table, "user,window")
    return Job("sales", per_hour, reads=source, writes=sink, mode=mode, trigger="available-now")  # type: ignore[arg-type]


def stored(server: PostgresServer, table: str) -> list[tuple[str, str, int]]:
    return server.rows(
        f"SELECT \"user\", to_char(window_start AT TIME ZONE 'UTC', 'HH24'), amount FROM {table} ORDER BY 1, 2"
    )


@pytest.mark.parametrize("mode", ["update", "complete", "append"])
def test_modes_and_a_struct_key(postgres: PostgresServer, drain, shop: Shop, mode: str) -> None:
    """A window in the key becomes two columns; update and complete upsert totals, append adds final ones."""
    shop.sell(("ann", "10:00", 1), ("ann", "10:30", 2), ("bob", "10:01", 5))
    shop.sell(("ann", "10:59", 4), ("ann", "11:00", 8))
    drain(job_into(postgres, shop, f"sales_{mode}", mode))
    if mode == "append":
        assert stored(postgres, "sales_append") == []
        shop.sell(("zoe", "18:00", 1))
        drain(job_into(postgres, shop, "sales_append", mode))
        assert stored(postgres, "sales_append") == [row for row in shop.per_hour() if row[0] != "zoe"]
    else:
        assert stored(postgres, f"sales_{mode}") == shop.per_hour()
    key = postgres.rows(
        "SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s::regclass ORDER BY 1",
        f"sales_{mode}",
    )
    assert [name for (name,) in key] == ["user", "window_end", "window_start"]


def test_several_rows_with_one_key_in_a_batch(postgres: PostgresServer, drain, shop: Shop) -> None:
    """The last of several rows with one key wins, as it would row by row; a per-batch job works the same way."""
    shop.sell(("ann", "10:00", 1), ("ann", "11:00", 2), ("b\0b", "10:00", 3))
    shop.sell(("ann", "12:00", 4), ("ann", "13:00", 5))
    job = replace(
        job_into(postgres, shop, "latest", "append"), transform=latest, writes=Postgres(postgres.url, "latest", "user")
    )
    drain(replace(job, per_batch=True))
    found = postgres.rows('SELECT "user", to_char("at", \'HH24:MI\'), amount, list FROM latest ORDER BY 1')
    assert found == [("ann", "13:00", 5, [5]), ("bb", "10:00", 3, [3])]


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver's time zone as in a program that did not set it to UTC."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_times_do_not_depend_on_the_time_zone(postgres: PostgresServer, drain, shop: Shop) -> None:
    """Timestamps are stored as they are, also both of an hour that the driver's time zone has twice."""
    times = ["2025-07-01T00:00:00.000001Z", "2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z", "1890-01-01T00:00:00Z"]
    (shop.folder / "1.json").write_text("".join(json.dumps({"user": "ann", "at": at}) + "\n" for at in [*times, None]))
    sink = Postgres(postgres.url, "zones", "user,at")
    drain(replace(job_into(postgres, shop, "zones", "append"), transform=latest, writes=sink))
    stored_times = postgres.rows('SELECT "at" FROM zones ORDER BY "at"')
    assert [None if at is None else at.astimezone(UTC).isoformat() for (at,) in stored_times] == [
        "1890-01-01T00:00:00+00:00",
        "2025-07-01T00:00:00.000001+00:00",
        "2025-10-26T00:30:00+00:00",
        "2025-10-26T01:30:00+00:00",
        None,
    ]


def test_a_nul_inside_an_array(postgres: PostgresServer, drain, shop: Shop) -> None:
    """A character that PostgreSQL cannot store is removed from nested text, and text that spells it is kept."""
    user = "a\0\0b \\u0000 \\\0\\"
    shop.sell((user, "10:00", 1))
    sink = Postgres(postgres.url, "nested", "amount")
    job = replace(job_into(postgres, shop, "nested", "append"), transform=names_in_array, writes=sink)
    drain(job)
    stored_user = user.replace("\0", "")
    assert postgres.rows("SELECT names, by_name FROM nested") == [([stored_user], {stored_user: stored_user})]


def test_a_null_key(postgres: PostgresServer, drain, shop: Shop) -> None:
    """A null is a key like any other: the later row replaces the earlier one."""
    shop.sell((None, "10:00", 1), ("ann", "10:00", 2))  # type: ignore[arg-type]
    shop.sell((None, "11:00", 3))  # type: ignore[arg-type]
    sink = Postgres(postgres.url, "nulls", "user")
    drain(replace(job_into(postgres, shop, "nulls", "append"), transform=latest, writes=sink))
    assert postgres.rows('SELECT "user", amount FROM nulls ORDER BY amount') == [("ann", 2), (None, 3)]


def test_a_rewound_batch_is_applied_again(postgres: PostgresServer, drain, shop: Shop, tmp_path: Path) -> None:
    """A batch that runs again is skipped, unless the checkpoint was changed in between."""
    shop.sell(("ann", "10:00", 1))
    sink = Postgres(postgres.url, "applied_again", "user")
    job = replace(job_into(postgres, shop, "applied_again"), transform=latest, writes=sink)
    drain(job)
    files = LocalTree(tmp_path / "checkpoint")

    def amount_after_running_batch_0_again() -> int:
        files.remove("commits/0")
        if files.exists("commits/.0.crc"):
            files.remove("commits/.0.crc")
        postgres.do("UPDATE applied_again SET amount = 0")
        assert [batch.batch_id for batch in drain(job)] == [0]
        return int(postgres.rows("SELECT amount FROM applied_again")[0][0])

    assert amount_after_running_batch_0_again() == 0
    write_entry(files, Change("1", "rewind", "redo batch 0", ()), done_at_ms=0)
    assert amount_after_running_batch_0_again() == 1


def test_an_existing_table(postgres: PostgresServer, drain, shop: Shop) -> None:
    """A table without a unique index on the key, or with other columns, is refused before the first batch."""
    shop.sell(("ann", "10:00", 1))
    postgres.do('CREATE TABLE odd ("user" text, window_start timestamptz, window_end timestamptz, amount bigint)')
    with pytest.raises(JobRefused) as refused:
        drain(job_into(postgres, shop, "odd"))
    assert "CREATE UNIQUE INDEX" in (refused.value.remedy or "")
    postgres.do('CREATE UNIQUE INDEX ON odd ("user", window_start, window_end)')
    drain(job_into(postgres, shop, "odd"))
    assert stored(postgres, "odd") == shop.per_hour()


def test_an_unreachable_server(headwater_spark: SparkSession, postgres: PostgresServer, shop: Shop) -> None:
    """An address without a server and a missing database are refused before Spark starts, without the password."""
    unused = f"postgresql://tester:secret@127.0.0.1:{free_port()}/postgres"
    for url in (unused, postgres.url.replace("/postgres", "/elsewhere").replace("tester@", "tester:secret@")):
        job = replace(job_into(postgres, shop, "t"), writes=Postgres(url, "t", "user"))
        with pytest.raises(ServiceUnreachable) as refused:
            check_services(job)
        assert refused.value.code == "postgres-unreachable"
        assert "secret" not in str(refused.value)
        assert "secret" not in repr(job)


JOB_FILE = '''
import os, signal
from headwater import Files, Job, Postgres
from headwater.spark import writing
from pyspark.sql import functions as F

def per_hour(rows):
    """Amount per user and hour."""
    windows = rows.withWatermark("at", "1 day").groupBy("user", F.window("at", "1 hour"))
    return windows.agg(F.sum("amount").alias("amount"))

SALES = Job("sales", per_hour, reads=Files("in", schema="user STRING, at TIMESTAMP, amount INT",
    options={"maxFilesPerTrigger": "1"}), writes=Postgres(os.environ["SALES_URL"], "killed", "user,window"), mode="update")

apply = writing.upsert_batch

def apply_and_die(sink, frame, batch_id, generation):
    apply(sink, frame, batch_id, generation)
    if batch_id == int(os.environ["DIE_AT"]):
        os.killpg(0, signal.SIGKILL)

writing.upsert_batch = apply_and_die
'''


@pytest.mark.slow
def test_killed_between_the_two_commits(postgres: PostgresServer, shop: Shop, tmp_path: Path) -> None:
    """If the process is killed after PostgreSQL commits and before Spark does, the batch is not applied twice."""
    (tmp_path / "jobs.py").write_text(JOB_FILE)
    for hour in range(10, 15):
        shop.sell(("ann", f"{hour}:00", 1), ("bob", "10:30", hour))

    def run(die_at: int) -> int:
        command = [HEADWATER, "run", "jobs.py:SALES", "--trigger", "available-now"]
        settings = {**os.environ, "SALES_URL": postgres.url, "DIE_AT": str(die_at)}
        done = subprocess.run(
            command, cwd=tmp_path, env=settings, stdout=sys.stderr, check=False, start_new_session=True
        )
        return done.returncode

    assert run(die_at=2) == -signal.SIGKILL
    commits = tmp_path / ".headwater" / "checkpoints" / "sales" / "commits"
    assert not (commits / "2").exists()
    assert postgres.rows("SELECT batch_id FROM headwater_batches WHERE target = 'killed'") == [(2,)]
    assert ("ann", "12", 1) in stored(postgres, "killed")
    for command in AUDIT:
        postgres.do(command)
    assert run(die_at=-1) == 0
    assert stored(postgres, "killed") == shop.per_hour()
    written = postgres.rows('SELECT "user", hour FROM audited ORDER BY at')
    assert ("ann", "12") not in written, "batch 2 was applied again"
    assert {("ann", "13"), ("ann", "14"), ("bob", "10")} == set(written)


AUDIT = [
    'CREATE TABLE audited (at bigserial, "user" text, hour text)',
    "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO audited (\"user\", hour) VALUES (NEW.\"user\", to_char(NEW.window_start AT TIME ZONE 'UTC', 'HH24')); "
    "RETURN NEW; END $$",
    "CREATE TRIGGER audit AFTER INSERT OR UPDATE ON killed FOR EACH ROW EXECUTE FUNCTION audit()",
]
