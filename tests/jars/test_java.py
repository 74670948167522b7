"""The Java installation."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.core.errors import SetupProblem
from headwater.jars import java as java_module
from headwater.jars.java import MIN_JAVA, major_version, require_java


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("21", 21), ("25-ea", 25), ("1.8.0_402", 8), ("11.0.2", 11), ("unknown", 0)],
)
def test_old_and_new_version_numbers(version: str, major: int) -> None:
    """Both numbering schemes of Java are understood."""
    assert major_version(version) == major


def test_this_machine_has_a_java() -> None:
    """The Java that runs these tests is found and new enough."""
    java = require_java()
    assert java.command.name == "java"
    assert java.major >= MIN_JAVA


def fake_java(folder: Path, script: str) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "java").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "java-too-old"),
        ("echo 'java version \"1.8.0_402\"' >&2", "java-too-old"),
        ("echo 'No Java runtime present, requesting install.' >&2; exit 1", "java-missing"),
    ],
)
def test_unusable_java(script: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is too old, or a stub that only reports its absence, is refused with a remedy."""
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java_module, "PLACES", ())
    with pytest.raises(SetupProblem) as refused:
        require_java()
    assert refused.value.code == code
    assert "install Java 17" in (refused.value.remedy or "")


def test_java_home_is_too_old_and_another_java_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME is the user's choice: the error names the Java to set it to."""
    fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2")
    fake_java(tmp_path / "jvm" / "java-21", "echo 'openjdk version \"21.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setattr(java_module, "PLACES", (f"{tmp_path}/jvm/*/bin/java",))
    with pytest.raises(SetupProblem) as refused:
        require_java()
    assert refused.value.code == "java-too-old"
    assert refused.value.evidence["found"] == "Java 11.0.2"
    home = tmp_path / "jvm" / "java-21"
    assert refused.value.remedy == f"export JAVA_HOME={home}   (Java 21.0.1, which is installed)"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "old")


def test_missing_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without JAVA_HOME and without java on PATH, the message shows what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java_module, "PLACES", (f"{tmp_path}/*/bin/java",))
    with pytest.raises(SetupProblem) as refused:
        require_java()
    assert refused.value.code == "java-missing"
    assert "install Java 17" in (refused.value.remedy or "")


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME without java is refused by name, because Spark would fail on it, too."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    with pytest.raises(SetupProblem) as refused:
        require_java()
    assert str(tmp_path / "missing") in str(refused.value)


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [((8, 11, 17, 21), 21), ((17, 25), 17), ((25, 26), 25), ((11, 17), 17)],
)
def test_the_newest_suitable_java_is_found(
    installed: tuple[int, ...], chosen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the Java on PATH is too old, the newest one that Spark is built for is used, and JAVA_HOME names it."""
    fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2")
    for major in installed:
        fake_java(tmp_path / "jvm" / f"java-{major}", f"echo 'openjdk version \"{major}.0.1\"' >&2")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old' / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(java_module, "PLACES", (f"{tmp_path}/jvm/*/bin/java",))
    java = require_java()
    assert java.major == chosen
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jvm" / f"java-{chosen}")
