"""``headwater jobs`` and ``--help``."""

from __future__ import annotations

import json

import pytest

from cli.commands import imported_by
from cli.running import Command


def test_list(command: Command) -> None:
    """Every job of the gallery is listed with its parameters, as a table and as JSON Lines."""
    listed = [json.loads(line) for line in command("jobs", "--json").out.splitlines()]
    names = [one["name"] for one in listed]
    assert "browser-stats-stateful" in names
    assert "user-sessions" in names
    stateful = listed[names.index("browser-stats-stateful")]
    assert stateful["source"].startswith("kafka://127.0.0.1:9092/visits")
    assert stateful["parameters"] == {"window": "5 minutes", "watermark": "20 minutes"}
    table = command("jobs")
    assert table.status == 0
    assert all(name in table.out for name in names)


def test_one(command: Command) -> None:
    """A single job is shown with its source and sink; for an unknown name, the nearest known one is suggested."""
    shown = command("jobs", "word-count").out
    assert "socket://127.0.0.1:9994" in shown
    assert "complete" in shown
    wrong = command("jobs", "word-cont")
    assert (wrong.status, wrong.err.splitlines()[-1]) == (2, "help: word-count")


@pytest.mark.parametrize("arguments", [["--help"], ["jobs", "--help"], ["run", "--help"], ["check", "--help"]])
def test_help_is_quick(arguments: list[str]) -> None:
    """Help does not import Spark or pandas."""
    assert not {"pyspark", "py4j", "pandas", "pyarrow", "psycopg", "confluent_kafka"} & imported_by(*arguments)


def test_help_has_usage_and_examples(command: Command) -> None:
    """The help of a verb shows its usage and an example."""
    shown = command("log", "--help").out
    assert "Usage: headwater log" in shown
    assert "headwater log browser-stats-stateful -n 20" in shown
