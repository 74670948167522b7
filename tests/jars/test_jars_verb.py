"""``headwater jars`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import free_port, run_here
from headwater.jars.resolve import jar_paths


def test_jars_are_listed() -> None:
    """The command lists exactly the files that Spark gets, with their sizes."""
    done = run_here("jars", "--configuration", "spark", "--no-archive", "--json")
    assert done.returncode == 0, done.stderr
    listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [entry["path"] for entry in listed] == [str(jar) for jar in jar_paths("spark")]
    assert all(entry["bytes"] == Path(entry["path"]).stat().st_size for entry in listed)


def test_unknown_configuration() -> None:
    """An unknown configuration is refused with a list of the existing ones."""
    done = run_here("jars", "--configuration", "flink")
    assert done.returncode == 2
    assert "spark, broker, s3" in done.stderr


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without network and without cached jars, there is one clear message with exit status 11 and no stack trace."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="closed"/><resolvers>'
        '<ibiblio name="closed" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADWATER_IVY_SETTINGS", str(settings))
    for verb in (["jars"], ["broker", "start", "--port", free_port(), "--data", tmp_path / "kafka"]):
        done = run_here(*verb)
        assert done.returncode == 11
        assert "no repository can be reached" in done.stderr
        assert "Traceback" not in done.stderr
        assert "Exception" not in done.stderr
