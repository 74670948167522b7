"""``headwater generate`` as its users run it, on a real broker and a real folder."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from broker_support import HEADWATER, Broker, free_port, headwater
from headwater.kafka.topics import find_topic

FAULTS = ["--late", "5%", "--duplicates", "1%", "--malformed", "0.02"]


def test_topic_gets_exactly_what_was_asked_for(broker: Broker) -> None:
    """The topic has the records, shares and bytes that a second run with the same seed puts elsewhere."""
    topics = ["generated-1", "generated-2"]
    for topic in topics:
        to = f"kafka://{broker.bootstrap}/{topic}"
        done = headwater("generate", "visits", "--to", to, "--count", 2000, "--seed", 7, *FAULTS, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["records"], told["late"], told["duplicates"], told["malformed"]) == (2000, 100, 20, 40)
        assert told["seed"] == 7
    first, second = (broker.consume(topic, 2000) for topic in topics)
    assert first == second
    assert len(first) - len(set(first)) == 20
    assert sum("T0" in record for record in first) >= 100


def test_folder_gets_the_same_bytes_as_the_topic(broker: Broker, tmp_path: Path) -> None:
    """Where records go does not change them."""
    for to in (f"kafka://{broker.bootstrap}/both", f"files:{tmp_path}?format=json"):
        done = headwater("generate", "trades", "--to", to, "--count", 1500, "--seed", 2)
        assert "1,500 trades to" in done.stdout, done.stderr
    in_files = [line for file in sorted(tmp_path.iterdir()) for line in file.read_text().splitlines()]
    assert in_files == broker.consume("both", 1500)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["trades-0000000000.json", "trades-0000000001.json"]


def test_rate_decides_how_many_records_a_file_has(tmp_path: Path) -> None:
    """With a rate a file lands every so many seconds, and its length does not depend on the machine's pace."""
    slow = ["--rate", 1000, "--every", 0.1, "--count", 300]
    done = headwater("generate", "sales", "--to", f"files:{tmp_path}?format=csv&header=true", *slow)
    assert done.returncode == 0, done.stderr
    lengths = [len(file.read_text().splitlines()) for file in sorted(tmp_path.glob("*.csv"))]
    assert lengths == [101, 101, 101]
    assert (tmp_path / "sales-0000000000.csv").read_text().startswith("store,counter,amount,sold_at\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_with_a_summary(number: signal.Signals, broker: Broker) -> None:
    """A stream without end stops cleanly, and what it says it sent is in the topic."""
    topic = f"endless-{number.name}"
    command = [HEADWATER, "generate", "sessions", "--to", f"kafka://{broker.bootstrap}/{topic}", "--rate", "200"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"created topic {topic}\n"
        assert len(broker.consume(topic, 10)) == 10
        process.send_signal(number)
        said, problems = process.communicate(timeout=60)
    assert process.returncode == 0, problems
    assert json.loads(said)["records"] == find_topic(broker.bootstrap, topic).records
    assert problems == ""


def test_partitions_are_filled_in_turns(broker: Broker) -> None:
    """All partitions of a topic get their part."""
    headwater("topics", "create", "three", "--partitions", 3, "--bootstrap", broker.bootstrap)
    headwater("generate", "purchases", "--to", f"kafka://{broker.bootstrap}/three", "--count", 640)
    offsets = find_topic(broker.bootstrap, "three").offsets
    assert [end for _, end in offsets.values()] == [256, 192, 192]


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (["--to", "console:"], 2, "kafka://127.0.0.1:9092/visits"),
        (["--to", "files:s3a://bucket/in"], 2, "a folder of this machine"),
        (["--to", "files:in?format=orc"], 2, "json, csv or text"),
        (["--to", "in"], 2, "files:in?format=json"),
        (["--to", "kafka://127.0.0.1:9/x?startingOffsets=earliest"], 2, "--to kafka://127.0.0.1:9/x"),
        (["--to", "files:in", "--late", "5"], 2, "5% or 0.05"),
        (["--to", "files:in", "--late", "some"], 2, "5% or 0.05"),
        (["--to", "files:in", "--late", "60%", "--malformed", "60%"], 2, "more than all records"),
        (["--to", "files:in", "--rate", "0"], 2, "above zero"),
        (["--to", "files:in", "--start", "yesterday"], 2, "--start now"),
    ],
)
def test_wrong_words_are_refused(arguments: list[str], status: int, part: str, tmp_path: Path) -> None:
    """What cannot be meant is refused with the right form, and nothing is written."""
    done = headwater("generate", "visits", *arguments, cwd=tmp_path)
    assert done.returncode == status
    assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_broker() -> None:
    """Without a broker the command says so, with the remedy."""
    done = headwater("generate", "visits", "--to", f"kafka://127.0.0.1:{free_port()}/visits", "--count", 1)
    assert done.returncode == 12
    assert "headwater broker start" in done.stderr
