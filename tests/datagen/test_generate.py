"""``headwater generate`` on a real broker and a real folder."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from broker_support import HEADWATER, Broker, free_port, run_here
from headwater.datagen.files import ObjectWriter
from headwater.kafka.topics import find_topic
from s3_support import BUCKET, S3

FAULTS = ["--late", "5%", "--duplicates", "1%", "--malformed", "0.02"]


def test_topic_has_the_requested_records(broker: Broker) -> None:
    """The topic has the requested number and shares of records; a second run with the same seed writes the same bytes."""
    topics = ["generated-1", "generated-2"]
    for topic in topics:
        to = f"kafka://{broker.bootstrap}/{topic}"
        done = run_here("generate", "visits", "--to", to, "--count", 2000, "--seed", 7, *FAULTS, "--json")
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        counts = tuple(summary[name] for name in ("records", "late", "duplicates", "malformed"))
        assert counts == (2000, 100, 20, 40)
        assert summary["seed"] == 7
    first, second = (broker.consume(topic, 2000) for topic in topics)
    assert first == second
    assert len(first) - len(set(first)) == 20
    assert sum("T0" in record for record in first) >= 100


def test_folder_has_the_same_bytes_as_the_topic(broker: Broker, tmp_path: Path) -> None:
    """The target does not change the records."""
    for to in (f"kafka://{broker.bootstrap}/both", f"files:{tmp_path}?format=json"):
        done = run_here("generate", "trades", "--to", to, "--count", 1500, "--seed", 2)
        assert "1,500 trades to" in done.stdout, done.stderr
    in_files = [line for file in sorted(tmp_path.iterdir()) for line in file.read_text().splitlines()]
    assert in_files == broker.consume("both", 1500)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["trades-0000000000.json", "trades-0000000001.json"]


def test_two_streams_that_belong_together(tmp_path: Path) -> None:
    """Impressions and clicks go to a folder each; the same seed generates the same bytes."""
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        places = {name: f"files:{folder / name}" for name in ("impressions", "clicks")}
        to = [word for name, uri in places.items() for word in ("--to", f"{name}={uri}")]
        done = run_here("generate", "impressions,clicks", *to, "--count", 3000, "--seed", 4, "--late", "1%", "--json")
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert (summary["records"], summary["late"], summary["to"]) == (3000, 30, places)
        lines = {
            name: [line for file in sorted((folder / name).iterdir()) for line in file.read_text().splitlines()]
            for name in places
        }
        assert {name: len(found) for name, found in lines.items()} == summary["streams"]
        written.append(lines)
    assert written[0] == written[1]
    shown = {json.loads(line)["impression"] for line in written[0]["impressions"]}
    assert {json.loads(line)["impression"] for line in written[0]["clicks"]} <= shown


def test_products_replace_the_table(tmp_path: Path) -> None:
    """Products are one file, which another run replaces, so that a product is never in the table twice."""
    for seed, extra in ((1, ""), (2, ""), (2, "?format=csv&header=true")):
        done = run_here("generate", "products", "--to", f"files:{tmp_path}{extra}", "--seed", seed)
        assert done.returncode == 0, done.stderr
    found = {file.name: file.read_text().splitlines() for file in tmp_path.iterdir()}
    assert {name: len(lines) for name, lines in found.items()} == {"products.json": 100, "products.csv": 101}
    assert json.loads(found["products.json"][0])["name"] == "small tea"
    assert found["products.csv"][0] == "product,name,category,price"
    for arguments, part in (
        (["--to", "files:in", "--rate", "5"], "--rate does not apply to products"),
        (["--to", "kafka://127.0.0.1:9092/products"], "to one folder"),
    ):
        refused = run_here("generate", "products", *arguments, cwd=tmp_path)
        assert (refused.returncode, part in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize(
    ("to", "part"),
    [
        (["files:in"], "--to impressions=files:data/impressions"),
        (["impressions=files:in"], "--to clicks=files:data/clicks"),
        (["impressions=files:a", "clicks=files:b?format=csv"], "in the same format"),
    ],
)
def test_each_stream_needs_a_target(to: list[str], part: str, tmp_path: Path) -> None:
    """A target for each stream is required, by name."""
    arguments = [word for one in to for word in ("--to", one)]
    done = run_here("generate", "impressions,clicks", *arguments, "--count", 1, cwd=tmp_path)
    assert done.returncode == 2
    assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_rate_decides_how_many_records_a_file_has(tmp_path: Path) -> None:
    """With a rate, a file is written at a fixed interval, and its length does not depend on the machine's speed."""
    slow = ["--rate", 1000, "--every", 0.1, "--count", 300]
    done = run_here("generate", "sales", "--to", f"files:{tmp_path}?format=csv&header=true", *slow)
    assert done.returncode == 0, done.stderr
    lengths = [len(file.read_text().splitlines()) for file in sorted(tmp_path.glob("*.csv"))]
    assert lengths == [101, 101, 101]
    assert (tmp_path / "sales-0000000000.csv").read_text().startswith("store,counter,amount,sold_at\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_with_a_summary(number: signal.Signals, broker: Broker) -> None:
    """An endless stream stops cleanly, and its summary matches what is in the topic."""
    topic = f"endless-{number.name}"
    command = [HEADWATER, "generate", "sessions", "--to", f"kafka://{broker.bootstrap}/{topic}", "--rate", "200"]
    with subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"created topic {topic}\n"
        assert len(broker.consume(topic, 10)) == 10
        process.send_signal(number)
        output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    assert json.loads(output)["records"] == find_topic(broker.connection, topic).records
    assert errors == ""


def test_partitions_are_filled_in_turns(broker: Broker) -> None:
    """All partitions of a topic receive records."""
    run_here("topics", "create", "three", "--partitions", 3, "--bootstrap", broker.bootstrap)
    run_here("generate", "purchases", "--to", f"kafka://{broker.bootstrap}/three", "--count", 640)
    offsets = find_topic(broker.connection, "three").offsets
    assert [end for _, end in offsets.values()] == [256, 192, 192]


@pytest.mark.parametrize(
    ("arguments", "status", "part"),
    [
        (["--to", "console:"], 2, "kafka://127.0.0.1:9092/visits"),
        (["--to", "s3://bucket/in?format=orc"], 2, "json, csv or text"),
        (["--to", "kafka://ann:secret@127.0.0.1:9/x"], 2, "kafka.sasl.jaas.config"),
        (["--to", "files:in?format=orc"], 2, "json, csv or text"),
        (["--to", "in"], 2, "files:in?format=json"),
        (["--to", "kafka://127.0.0.1:9/x?startingOffsets=earliest"], 2, "--to kafka://127.0.0.1:9/x"),
        (["--to", "files:in", "--late", "5"], 2, "5% or 0.05"),
        (["--to", "files:in", "--late", "some"], 2, "5% or 0.05"),
        (["--to", "files:in", "--late", "60%", "--malformed", "60%"], 2, "more than 100%"),
        (["--to", "files:in", "--rate", "0"], 2, "greater than zero"),
        (["--to", "files:in", "--start", "yesterday"], 2, "--start now"),
        (["--to", "files:in", "--to", "files:out"], 2, "written to one target"),
    ],
)
def test_invalid_options_are_refused(arguments: list[str], status: int, part: str, tmp_path: Path) -> None:
    """An invalid option is refused with the valid form, and nothing is written."""
    done = run_here("generate", "visits", *arguments, cwd=tmp_path)
    assert done.returncode == status
    assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_broker() -> None:
    """A missing broker is reported with a remedy."""
    done = run_here("generate", "visits", "--to", f"kafka://127.0.0.1:{free_port()}/visits", "--count", 1)
    assert done.returncode == 12
    assert "headwater broker start" in done.stderr


@pytest.mark.parametrize(
    "to", ["s3://{}/landing-1?format=csv&header=true", "files:s3a://{}/landing-2?format=csv&header=true"]
)
def test_objects_on_s3(to: str, s3: S3, tmp_path: Path) -> None:
    """On S3 each file is one object with the bytes of the local file; a second run continues the numbering."""
    options = ["--count", 250, "--per-file", 100, "--seed", 5, "--json"]
    for target in (to.format(BUCKET), f"files:{tmp_path}?format=csv&header=true"):
        for _ in range(2):
            done = run_here("generate", "sales", "--to", target, *options)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["records"] == 250
    prefix = to.partition("{}/")[2].partition("?")[0]
    names = [f"sales-{number:010d}.csv" for number in range(6)]
    assert sorted(s3.objects(prefix)) == sorted(file.name for file in tmp_path.iterdir()) == names
    assert [s3.read(prefix, name) for name in names] == [(tmp_path / name).read_bytes() for name in names]


def test_object_appears_complete(s3: S3) -> None:
    """While records are being added, a reader sees only complete objects."""
    writer = ObjectWriter(s3.url("complete"), stem="sales", suffix=".json", records_per_file=3)
    writer.send_values([b"1", b"2"])
    assert s3.objects("complete") == {}
    writer.send_values([b"3", b"4"])
    assert {name: s3.read("complete", name) for name in s3.objects("complete")} == {
        "sales-0000000000.json": b"1\n2\n3\n"
    }
    writer.flush()
    assert s3.read("complete", "sales-0000000001.json") == b"4\n"


def test_missing_bucket(s3: S3) -> None:
    """A bucket that does not exist is reported with the store's reason and a remedy."""
    done = run_here("generate", "sales", "--to", "s3://no-such-bucket/landing", "--count", 1)
    assert (done.returncode, done.stderr.partition("]")[0]) == (12, "error[store-unreachable")
    assert "bucket does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_store_without_a_driver() -> None:
    """A URL for which no fsspec driver is installed is refused."""
    done = run_here("generate", "sales", "--to", "files:nosuch://bucket/landing", "--count", 1)
    assert (done.returncode, done.stderr.partition("]")[0]) == (11, "error[no-store-driver")
