"""``headwater jobs``: the gallery as a list, as JSON, and one job whole."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
    """A job alone is shown with where it reads and writes; an unknown name with the nearest known one."""
    shown = command("jobs", "word-count").out
    assert "socket://127.0.0.1:9999" in shown
    assert "complete" in shown
    wrong = command("jobs", "word-cont")
    assert (wrong.status, wrong.err.splitlines()[-1]) == (2, "help: word-count")


@pytest.mark.parametrize("words", [["--help"], ["jobs", "--help"], ["run", "--help"], ["check", "--help"]])
def test_help_is_quick(words: list[str]) -> None:
    """Help loads neither Spark nor pandas."""
    code = (
        f"import sys; sys.argv = ['headwater', *{words!r}]\n"
        "from headwater.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end: assert not end.code\n"
        "assert not {'pyspark', 'py4j', 'pandas', 'pyarrow', 'psycopg', 'confluent_kafka'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage: headwater" in done.stdout
