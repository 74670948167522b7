"""A job with two topics: the lag of each, and a rewind after one of them has lost records."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_support import Broker
from headwater import Checkpoint
from headwater.checkpoint.history import History
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import ChangeRefused
from headwater.kafka.clients import Cluster
from headwater.web.kafka_lag import KafkaLag
from two_sources import TwoSources
from waiting_support import wait_until

ADS, CLICKS = "several-ads", "several-clicks"


@pytest.fixture
def checkpoint(broker: Broker, tmp_path: Path) -> Path:
    """Return a checkpoint that has read 12 of 20 ads and 4 of 7 clicks, in two batches."""
    for topic, records in ((ADS, 20), (CLICKS, 7)):
        broker.produce(topic, *(str(number) for number in range(records)))
    made = TwoSources(f"kafka {ADS}", f"kafka {CLICKS}").with_job(clicks=broker.uri(CLICKS), ads=broker.uri(ADS))
    return made.batch(6, 2, watermark=None).batch(6, 2, watermark=None).write(tmp_path / "join")


def test_lag_and_lost_records(broker: Broker, checkpoint: Path) -> None:
    """The lag is known for each source; a rewind names the one whose records the broker no longer has."""
    files, lag = LocalTree(checkpoint), KafkaLag()
    job, batches = read_job_record(files), History(files).batches()
    wait_until(lambda: lag.rows(job, batches) is not None, "the lag")
    assert lag.by_source(job, batches) == {"ads": 8, "clicks": 3}
    assert lag.rows(job, batches) == 11

    plan = Checkpoint(checkpoint).plan_rewind(to=0)
    assert [(one.label, one.still_there) for one in plan.rereads] == [("ads", True), ("clicks", True)]
    delete_records(broker, CLICKS, before=4)
    with pytest.raises(ChangeRefused) as refused:
        Checkpoint(checkpoint).plan_rewind(to=0).apply()
    assert refused.value.problem.startswith("clicks no longer has all the input")
    assert refused.value.evidence == {"clicks": f"{CLICKS}[0] now starts at offset 4, but offset 2 is needed"}
    assert History(files).last_committed == 1


def delete_records(broker: Broker, topic: str, *, before: int) -> None:
    """Delete the oldest records, as retention does."""
    from confluent_kafka import TopicPartition

    client = Cluster(broker.connection).client
    for done in client.delete_records([TopicPartition(topic, 0, before)]).values():
        done.result(timeout=120)
