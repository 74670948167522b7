"""``headwater migrate --source-map``: two topics change places, and the stream continues with its offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker_support import Broker
from cli.one_process import run_all
from headwater import Checkpoint
from spark.topic_support import make

JOBS = '''
from pyspark.sql import functions as F
from headwater import Console, Job, Kafka

FORM = "user STRING, amount BIGINT"


def totals(web, app):
    """Purchases of both sources, per user."""
    return web.unionByName(app).groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


def job(**topics):
    sources = {name: Kafka(topic, schema=FORM, servers="SERVERS") for name, topic in topics.items()}
    return Job("totals", totals, reads=sources, writes=Console(), mode="update")


BEFORE, AFTER = job(web="swapped-one", app="swapped-two"), job(web="swapped-two", app="swapped-one")
'''
RECORDS = [{"user": user, "amount": amount} for user, amount in (("ann", 1), ("bob", 20), ("ann", 300))]


@pytest.mark.services
@pytest.mark.slow
def test_two_topics_change_places(broker: Broker, tmp_path: Path) -> None:
    """After the swap, every record of both topics counts once, as in a run that was never interrupted."""
    make(broker, "swapped-one", 2)
    make(broker, "swapped-two", 1)
    (tmp_path / "jobs.py").write_text(JOBS.replace("SERVERS", broker.bootstrap))
    one, two = (["produce", f"swapped-{name}", "--bootstrap", broker.bootstrap] for name in ("one", "two"))
    drain = ["--trigger", "available-now", "--checkpoint"]
    migrate = ["migrate", "totals", "--job", "jobs.py:AFTER", "--yes", "--json"]
    ran = run_all(
        tmp_path,
        one,
        one,
        two,
        ["run", "jobs.py:BEFORE", *drain, "totals"],
        one,
        two,
        two,
        ["check", "jobs.py:AFTER", "--checkpoint", "totals", "--json"],
        [*migrate, "--source-map", "web=app", "--source-map", "app=web"],
        ["run", "jobs.py:AFTER", *drain, "totals"],
        ["run", "jobs.py:AFTER", *drain, "whole"],
        stdin="".join(f"{json.dumps(record)}\n" for record in RECORDS),
    )
    checked, moved = ran[7:9]
    assert [one.status for one in (*ran[:7], *ran[9:])] == [0] * 9, "\n".join(one.err for one in ran)
    assert json.loads(checked.out)["verdict"] == "needs-migrate"
    assert moved.status == 0, moved.err
    places = [(one["old_place"], one["new_place"]) for one in json.loads(moved.out.splitlines()[0])["sources"]]
    assert places == [(1, 0), (0, 1)]
    expected = {"ann": (12, 6 * 301), "bob": (6, 120)}
    assert (totals(tmp_path / "totals"), totals(tmp_path / "whole")) == (expected, expected)
    ends = [list(source.end) for source in Checkpoint(tmp_path / "totals").batches[-1].sources]
    assert ends == [["swapped-two"], ["swapped-one"]]


def totals(checkpoint: Path) -> dict[str, Any]:
    rows = Checkpoint(checkpoint).state().to_pylist()
    return {row["key"]["user"]: (row["value"]["count"], row["value"]["sum"]) for row in rows}
