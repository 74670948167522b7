"""Topics and records on a real broker, through the commands."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker_support import HEADWATER, Broker, free_port, run_here
from headwater.core.errors import ServiceUnreachable, UsageProblem
from headwater.kafka.options import Connection
from headwater.kafka.records import TopicWriter, read_records
from headwater.kafka.topics import _wait_until_known
from waiting_support import PATIENCE_SECONDS

pytestmark = pytest.mark.services


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"t-{uuid.uuid4()}"


def listed(broker: Broker) -> dict[str, dict[str, object]]:
    done = run_here("topics", "--bootstrap", broker.bootstrap, "--json")
    return {entry["topic"]: entry for entry in map(json.loads, done.stdout.splitlines())}


def test_topic_is_created_listed_and_deleted(broker: Broker, topic: str) -> None:
    """A new topic is listed with its partitions until it is deleted."""
    where = ["--bootstrap", broker.bootstrap]
    assert run_here("topics", "create", topic, "--partitions", 3, *where).returncode == 0
    assert listed(broker)[topic] == {
        "topic": topic,
        "partitions": 3,
        "records": 0,
        "offsets": {"0": [0, 0], "1": [0, 0], "2": [0, 0]},
    }
    assert topic in run_here("topics", *where).stdout
    again = run_here("topics", "create", topic, *where)
    assert again.returncode == 2
    assert "already" in again.stderr
    unsure = run_here("topics", "delete", topic, *where)
    assert unsure.returncode == 2
    assert "--yes" in unsure.stderr
    assert run_here("topics", "delete", topic, "--yes", *where).returncode == 0
    assert topic not in listed(broker)


@pytest.mark.parametrize("exists", [True, False])
def test_brokers_that_learn_of_a_topic_late(exists: bool) -> None:
    """A command ends when the next one finds the topic with a leader for each partition, or does not find it any more."""
    leaders: list[dict[int, int]] = [{}, {0: -1}, {0: 1}] if exists else [{0: 1}, {0: -1}, {}]
    answers = iter(leaders)

    class Late:
        def metadata(self) -> SimpleNamespace:
            partitions = {number: SimpleNamespace(leader=leader) for number, leader in next(answers).items()}
            return SimpleNamespace(topics={"t": SimpleNamespace(partitions=partitions)} if partitions else {})

    _wait_until_known(Late(), "t", exists=exists)  # type: ignore[arg-type]
    assert next(answers, None) is None


def test_topic_with_an_illegal_name(broker: Broker) -> None:
    """A name that Kafka does not allow is refused with the rule."""
    refused = run_here("topics", "create", "a topic", "--bootstrap", broker.bootstrap)
    assert refused.returncode == 2
    assert "letters, digits" in refused.stderr


def test_lines_become_records_and_come_back(broker: Broker, topic: str) -> None:
    """Each line is one record, in order, for any line ending and alphabet."""
    lines = ["plain", "", "grüße 日本 🌊", "{'a': 1}"]
    text = "plain\r\n\ngrüße 日本 🌊\n{'a': 1}"
    done = run_here("produce", topic, "--bootstrap", broker.bootstrap, stdin=text)
    assert done.returncode == 0
    assert f"created topic {topic}" in done.stderr
    assert "4 records sent" in done.stderr
    assert done.stdout == ""
    assert broker.consume(topic, 4) == lines


def test_keys_partitions_and_offsets_are_shown_as_json(broker: Broker, topic: str) -> None:
    """With --json each record has its partition, offset, key and timestamp."""
    where = ["--bootstrap", broker.bootstrap]
    run_here("topics", "create", topic, "--partitions", 2, *where)
    run_here("produce", topic, "--partition", 1, "--key-separator", "=>", *where, stdin="k=>v\nl=>w=>x\n")
    shown = run_here("consume", topic, "--from-beginning", "--count", 2, "--timeout", 120, "--json", *where)
    records = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(r["partition"], r["offset"], r["key"], r["value"]) for r in records] == [
        (1, 0, "k", "v"),
        (1, 1, "l", "w=>x"),
    ]
    assert all(record["topic"] == topic and record["timestamp"].endswith("Z") for record in records)


def test_line_without_a_key(broker: Broker, topic: str) -> None:
    """A line without the separator stops the command; the lines before it have been sent."""
    done = run_here("produce", topic, "--bootstrap", broker.bootstrap, "--key-separator", ":", stdin="a:1\nb\n")
    assert done.returncode == 2
    assert "line 2" in done.stderr
    assert broker.consume(topic, 1) == ["1"]


def test_unknown_partition(broker: Broker, topic: str) -> None:
    """A partition that the topic does not have is refused with the valid range."""
    done = run_here("produce", topic, "--bootstrap", broker.bootstrap, "--partition", 5, stdin="x\n")
    assert done.returncode == 2
    assert "0 to 0" in done.stderr


def test_consuming_from_now_on_sees_only_what_comes(broker: Broker, topic: str) -> None:
    """Without --from-beginning, only records that arrive after the start are read."""
    broker.produce(topic, "before")
    records = read_records(broker.connection, topic, count=1, quiet_seconds=0.2)
    assert list(records) == []
    with TopicWriter(broker.connection, topic) as writer:
        coming = read_records(broker.connection, topic, from_beginning=True, count=2, quiet_seconds=120)
        assert next(coming).value == b"before"
        writer.send(b"after")
        writer.flush()
        assert next(coming).value == b"after"


def test_timeout_ends_a_wait(broker: Broker, topic: str) -> None:
    """--timeout ends the command when no more records arrive, and the summary counts those that did."""
    broker.produce(topic, "one")
    done = run_here("consume", topic, "--bootstrap", broker.bootstrap, "--from-beginning", "--timeout", 5)
    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "1 record from" in done.stderr


def test_interrupt_ends_consuming_cleanly(broker: Broker, topic: str) -> None:
    """Ctrl-C ends the command with status 0 and no traceback."""
    broker.produce(topic, "one")
    command = [HEADWATER, "consume", topic, "--bootstrap", broker.bootstrap, "--from-beginning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "Traceback" not in messages


def test_missing_topic(broker: Broker) -> None:
    """Reading a topic that does not exist is refused with the command that creates it."""
    done = run_here("consume", "no-such-topic", "--bootstrap", broker.bootstrap, "--timeout", 1)
    assert done.returncode == 12
    assert done.stderr.startswith(f"error[no-topic]: the broker at {broker.bootstrap} has no topic no-such-topic\n")
    assert "headwater topics create no-such-topic" in done.stderr
    assert "no-such-topic" not in listed(broker)


@pytest.mark.parametrize("verb", [["topics"], ["consume", "x"], ["produce", "x"], ["topics", "create", "x"]])
def test_no_broker(verb: list[str], tmp_path: Path) -> None:
    """Without a broker every command reports it with the remedy, and the client library prints nothing."""
    done = run_here(*verb, "--bootstrap", f"127.0.0.1:{free_port()}", cwd=tmp_path, stdin="x\n")
    assert done.returncode == 12
    assert done.stderr.startswith("error[kafka-unreachable]: cannot connect to Kafka at 127.0.0.1:")
    assert ": connection refused\n" in done.stderr
    assert "help: headwater broker start" in done.stderr
    assert "rdkafka" not in done.stderr
    assert done.stdout == ""


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A server that accepts connections and never replies."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_something_that_is_not_kafka(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts connections and does not speak Kafka is reported within seconds."""
    monkeypatch.setattr("headwater.kafka.clients.ANSWER_SECONDS", 1.0)
    done = run_here("topics", "--bootstrap", f"127.0.0.1:{silent_port}")
    assert done.returncode == 12
    assert "cannot connect to Kafka at" in done.stderr


def test_bootstrap_without_a_port() -> None:
    """A bootstrap server without a port is refused with the right form."""
    done = run_here("topics", "--bootstrap", "localhost")
    assert done.returncode == 2
    assert "127.0.0.1:9092" in done.stderr


def test_values_are_assigned_to_partitions_by_position(broker: Broker, topic: str) -> None:
    """The same values go to the same partitions, in order, every time."""
    run_here("topics", "create", topic, "--partitions", 2, "--bootstrap", broker.bootstrap)
    values = [str(number).encode() for number in range(300)]
    with TopicWriter(broker.connection, topic) as writer:
        writer.send_values(values)
    found = list(read_records(broker.connection, topic, from_beginning=True, count=300, quiet_seconds=120))
    by_partition = [[int(r.value or b"") for r in found if r.partition == number] for number in (0, 1)]
    assert by_partition[0] == [n for n in range(300) if (n // 64) % 2 == 0]
    assert by_partition[1] == [n for n in range(300) if (n // 64) % 2 == 1]


def test_unknown_client_option(broker: Broker, topic: str) -> None:
    """An option that the client library does not know is refused before a topic is created."""
    with pytest.raises(UsageProblem, match=r"kafka\.no\.such\.option has no counterpart in the Python client"):
        TopicWriter(Connection(broker.bootstrap, {"kafka.no.such.option": "1"}), topic)
    assert topic not in listed(broker)


def test_options_of_a_uri_reach_the_client(broker: Broker, topic: str) -> None:
    """generate honors the options of its URI: an invalid value is reported."""
    uri = f"kafka://{broker.bootstrap}/{topic}?kafka.compression.type=never"
    done = run_here("generate", "visits", "--to", uri, "--count", 1)
    assert done.returncode == 2
    assert "error[bad-kafka-option]" in done.stderr
    assert "never" in done.stderr


@pytest.mark.slow
def test_broker_that_stops_while_records_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that cannot be delivered raise an error; they are never lost silently."""
    monkeypatch.setattr("headwater.kafka.records.DELIVERY_SECONDS", 3)
    port = free_port()
    assert run_here("broker", "start", "--port", port, "--data", tmp_path).returncode == 0
    try:
        writer = TopicWriter(Connection(f"127.0.0.1:{port}"), "gone")
        writer.send(b"arrives")
        writer.flush()
    finally:
        run_here("broker", "stop", "--data", tmp_path)
    with pytest.raises(ServiceUnreachable) as failed, writer:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            writer.send(b"lost")
            writer.flush()
    assert failed.value.code == "kafka-write-failed"
