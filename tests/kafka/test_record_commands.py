"""``headwater produce`` and ``consume`` with Avro and Protobuf records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import Broker, run_here
from registry_support import SchemaRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
LINE = '{"id": "a", "at": "2024-10-06T10:00:00Z"}\n'
SHOWN = {"id": "a", "at": "2024-10-06T10:00:00+00:00"}


def test_avro_lines(broker: Broker, registry: SchemaRegistry, tmp_path: Path) -> None:
    """Lines of JSON become Avro records with the id of their registered schema, and are shown as JSON again."""
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(ORDER))
    options = ["--format", "avro", "--registry", registry.url, *broker.arguments]
    sent = run_here("produce", "cli-orders", *options, "--schema", schema, stdin=LINE + "{}\n")
    assert sent.returncode == 2
    assert "error[bad-record]" in sent.stderr
    assert list(registry.subjects) == ["cli-orders-value"]
    broker.produce("cli-orders", "nonsense")
    limits = ["--from-beginning", "--count", 2, "--timeout", 120, "--json"]
    shown = run_here("consume", "cli-orders", *options, *limits)
    first, second = map(json.loads, shown.stdout.splitlines())
    assert (json.loads(first["value"]), second["value"]) == (SHOWN, "bm9uc2Vuc2U=")
    assert "cli-orders[0]@1 is malformed: the first byte is 0x6e" in shown.stderr


def test_protobuf_lines(broker: Broker, tmp_path: Path) -> None:
    """A .proto file is enough to write and read Protobuf records."""
    schema = tmp_path / "order.proto"
    schema.write_text('syntax = "proto3"; message Order { string id = 1; map<string, int32> n = 2; }')
    options = ["--format", "protobuf", "--schema", schema, *broker.arguments]
    assert run_here("produce", "cli-proto", *options, stdin='{"id": "a", "n": {"x": 1}}').returncode == 0
    shown = run_here("consume", "cli-proto", *options, "--from-beginning", "--count", 1, "--timeout", 120)
    assert json.loads(shown.stdout) == {"id": "a", "n": {"x": 1}}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--format", "xml"], "bad-option"),
        (["--schema", "a.avsc"], "bad-option"),
        (["--format", "avro"], "no-schema"),
        (["--format", "avro", "--schema", "missing.avsc"], "no-schema-file"),
    ],
)
def test_refusals(options: list[str], code: str) -> None:
    """Options that contradict each other are refused before a broker is contacted."""
    for command in ("produce", "consume"):
        done = run_here(command, "t", *options, "--bootstrap", "127.0.0.1:1")
        assert f"error[{code}]" in done.stderr
