"""The cache of jars, filled by the real Ivy from a small local repository."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.core.errors import SetupProblem
from headwater.jars.resolve import IVY_FILE, cache_folder, jar_paths
from headwater.jars.versions import pyspark_folder

pytestmark = pytest.mark.services

TINY_IVY = """
<ivy-module version="2.0">
  <info organisation="tests" module="jars"/>
  <configurations><conf name="tiny"/></configurations>
  <dependencies>
    <dependency org="org.example" name="first" rev="1.0" conf="tiny->default"/>
    <dependency org="org.example" name="second" rev="2.0" conf="tiny->default"/>
  </dependencies>
</ivy-module>
"""
SETTINGS = """
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="{root}"/></resolvers>
</ivysettings>
"""


def publish(repository: Path, name: str, version: str) -> None:
    folder = repository / "org/example" / name / version
    folder.mkdir(parents=True)
    (folder / f"{name}-{version}.jar").write_bytes(f"jar {name}".encode() * 1000)
    (folder / f"{name}-{version}.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>org.example</groupId><artifactId>{name}</artifactId><version>{version}</version></project>"
    )


@pytest.fixture
def ivy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of two jars, a repository that has them, and an empty cache."""
    publish(tmp_path / "repository", "first", "1.0")
    publish(tmp_path / "repository", "second", "2.0")
    (tmp_path / "ivysettings.xml").write_text(SETTINGS.format(root=(tmp_path / "repository").as_uri()))
    (tmp_path / "ivy.xml").write_text(TINY_IVY)
    monkeypatch.setenv("HEADWATER_IVY_SETTINGS", str(tmp_path / "ivysettings.xml"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "ivy.xml"


def names(jars: list[Path]) -> list[str]:
    return [jar.name for jar in jars]


def test_jars_are_fetched_once(ivy_file: Path) -> None:
    """The first use fetches jars from the user's mirror and prints a message; the second finds them in the cache."""
    messages: list[str] = []
    first = jar_paths("tiny", ivy_file=ivy_file, on_fetch=messages.append)
    assert names(first) == ["first-1.0.jar", "second-2.0.jar"]
    assert len(messages) == 1
    assert jar_paths("tiny", ivy_file=ivy_file, on_fetch=messages.append) == first
    assert len(messages) == 1


def test_another_ivy_file_has_another_folder(ivy_file: Path) -> None:
    """The folder depends on the content of ivy.xml, so a changed version never uses old jars."""
    before = jar_paths("tiny", ivy_file=ivy_file)
    ivy_file.write_text(re.sub(r"<dependency.*second.*\n", "", TINY_IVY))
    after = jar_paths("tiny", ivy_file=ivy_file)
    assert names(after) == ["first-1.0.jar"]
    assert before[0].parent != after[0].parent


@pytest.mark.parametrize(
    "damage",
    [
        *("flipped bit", "truncated manifest"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("truncated", "missing", "additional", "no manifest")),
    ],
)
def test_damaged_cache_is_fetched_again(damage: str, ivy_file: Path) -> None:
    """A folder that does not match its checksums is fetched again."""
    jars = jar_paths("tiny", ivy_file=ivy_file)
    intact = [jar.read_bytes() for jar in jars]
    manifest = jars[0].with_name("manifest.json")
    match damage:
        case "flipped bit":
            jars[0].write_bytes(bytes([intact[0][0] ^ 1]) + intact[0][1:])
        case "truncated":
            jars[0].write_bytes(intact[0][:-1])
        case "missing":
            jars[1].unlink()
        case "additional":
            jars[0].with_name("third-3.0.jar").write_bytes(b"unknown")
        case "truncated manifest":
            manifest.write_bytes(manifest.read_bytes()[:40])
        case _:
            manifest.unlink()
    assert jar_paths("tiny", ivy_file=ivy_file) == jars
    assert [jar.read_bytes() for jar in jars] == intact
    assert sorted(path.name for path in jars[0].parent.iterdir()) == sorted([*names(jars), "manifest.json"])


def test_leftovers_of_a_killed_process_are_removed(ivy_file: Path) -> None:
    """The partially written folder of a killed process is removed."""
    folder = jar_paths("tiny", ivy_file=ivy_file)[0].parent
    leftover = folder.parent / f".{folder.name}.died" / "fresh"
    leftover.mkdir(parents=True)
    (leftover / "first-1.0.jar").write_bytes(b"half")
    (folder / "manifest.json").unlink()
    jar_paths("tiny", ivy_file=ivy_file)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]


def test_concurrent_processes(ivy_file: Path) -> None:
    """Processes that need the same jars at the same time fetch them only once."""
    code = (
        "import sys; from pathlib import Path; from headwater.jars.resolve import jar_paths\n"
        "print(*jar_paths('tiny', ivy_file=Path(sys.argv[1]), on_fetch=lambda _: print('fetching')), sep='\\n')"
    )
    command = [sys.executable, "-c", code, str(ivy_file)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum(lines.count("fetching") for lines in outputs) == 1
    assert {tuple(line for line in lines if line != "fetching") for lines in outputs} == {
        tuple(str(jar) for jar in jar_paths("tiny", ivy_file=ivy_file))
    }


def test_no_network(ivy_file: Path, tmp_path: Path) -> None:
    """An unreachable repository is reported as such, and leaves nothing behind."""
    (tmp_path / "ivysettings.xml").write_text(SETTINGS.format(root="http://127.0.0.1:9/"))
    with pytest.raises(SetupProblem) as refused:
        jar_paths("tiny", ivy_file=ivy_file)
    assert "no repository can be reached" in refused.value.problem
    assert "headwater jars --configuration tiny" in (refused.value.remedy or "")
    assert [path.suffix for path in (tmp_path / "cache/jars").iterdir()] == [".lock"]


def test_repository_without_a_jar(ivy_file: Path) -> None:
    """A mirror that lacks a jar is distinguished from an unreachable one, and the jar is named."""
    ivy_file.write_text(TINY_IVY.replace('rev="2.0"', 'rev="9.9"'))
    with pytest.raises(SetupProblem) as refused:
        jar_paths("tiny", ivy_file=ivy_file)
    assert "does not have all the jars" in refused.value.problem
    assert "org.example#second;9.9" in str(refused.value)


def test_missing_settings(ivy_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A HEADWATER_IVY_SETTINGS that does not exist is refused, not ignored."""
    monkeypatch.setenv("HEADWATER_IVY_SETTINGS", "/nowhere/ivysettings.xml")
    with pytest.raises(SetupProblem, match="names a file that does not exist"):
        jar_paths("tiny", ivy_file=ivy_file)


def test_unwritable_cache(ivy_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be created is refused by name."""
    (tmp_path / "a-file").touch()
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "a-file"))
    with pytest.raises(SetupProblem) as refused:
        jar_paths("tiny", ivy_file=ivy_file)
    assert refused.value.code == "cache-unwritable"


def test_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME is used, unless HEADWATER_CACHE is set."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    monkeypatch.delenv("HEADWATER_CACHE", raising=False)
    assert cache_folder() == Path("/caches/headwater")
    monkeypatch.setenv("HEADWATER_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")


def test_unknown_configuration() -> None:
    """A configuration that ivy.xml lacks raises ``ValueError``."""
    with pytest.raises(ValueError, match="no configuration"):
        jar_paths("flink")


def test_connector_adds_nothing_that_pyspark_has() -> None:
    """The connector's jars and PySpark's own have no artifact in common."""

    def artifacts(jars: list[Path]) -> set[str]:
        return {re.sub(r"-\d.*", "", jar.name) for jar in jars}

    fetched = artifacts(jar_paths("spark"))
    assert "spark-sql-kafka-0-10_2.13" in {re.sub(r"-4\.2\.0\.jar$", "", jar.name) for jar in jar_paths("spark")}
    assert fetched & artifacts(list((pyspark_folder() / "jars").glob("*.jar"))) == set()


def test_no_repository_host_is_named() -> None:
    """Jars come from Ivy's default or the user's settings, never from a host in ivy.xml."""
    assert "://" not in IVY_FILE.read_text()
