"""`pip install headwater` without extras: a wheel in an empty environment, without Java, PySpark, pandas or NiceGUI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from corpus_support import CorpusCheckpoint, load
from test_packaging import build_wheel

LEFT_OUT = ("pyspark", "py4j", "pandas", "nicegui", "confluent_kafka", "psycopg", "prometheus_client", "s3fs")
MOST_MEGABYTES = 375
OTHERS = ("aggregation-changelog", "aggregation-hdfs", "join-rocksdb")

pytestmark = pytest.mark.services  # builds an environment


@pytest.fixture(scope="module", params=["linked", pytest.param("downloaded", marks=pytest.mark.slow)])
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment into which only the wheel and its dependencies were installed.

    The dependencies are those that the wheel declares, either as they are installed here or from a package index.
    """
    place = tmp_path_factory.mktemp("bare")
    venv.create(place, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--disable-pip-version-check"]
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    options = []
    if request.param == "linked":
        (packages,) = place.glob("lib/python*/site-packages")
        link_packages(declared_by(wheel), packages)
        options = ["--no-deps", "--no-index"]
    done = subprocess.run([*pip, "install", "--quiet", *options, wheel], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return place / "bin"


def declared_by(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []


def link_packages(requirements: list[str], into: Path) -> None:
    """Link the files of the packages that meet the requirements, and of those that these need in turn."""
    linked: set[str] = set()
    needed = [(Requirement(text), "") for text in requirements]
    while needed:
        requirement, extra = needed.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        found = distribution(requirement.name)
        needed += [(Requirement(text), of) for of in requirement.extras for text in found.requires or ()]
        if requirement.name in linked:
            continue
        linked.add(requirement.name)
        needed += [(Requirement(text), "") for text in found.requires or ()]
        for file in found.files or ():
            if ".." not in file.parts:  # a program, outside of the folder of packages
                (into / file).parent.mkdir(parents=True, exist_ok=True)
                (into / file).symlink_to(Path(str(file.locate())))


@pytest.fixture
def headwater(bare: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a verb where no Java can be found."""
    left_out = {"PYTHONPATH", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "SPARK_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out} | {"PATH": str(bare)}

    def run(*arguments: str, exit_status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [bare / "headwater", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == exit_status, done.stdout + done.stderr
        return done

    return run


def test_it_brings_only_what_reads_and_changes_checkpoints(bare: Path) -> None:
    """No package of an extra is installed, and the installation stays below its limit."""
    tried = "import importlib.util as u, sys; print([n for n in sys.argv[1:] if u.find_spec(n)])"
    found = subprocess.run([bare / "python", "-c", tried, *LEFT_OUT], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    (packages,) = bare.parent.glob("lib/python*/site-packages")
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file()) // 1_000_000
    assert size < MOST_MEGABYTES


@pytest.mark.parametrize("name", ["kafka-format2", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_reading_and_changing(
    name: str, headwater: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """Every verb that reads a checkpoint works, and so does every verb that changes one without running it."""
    checkpoint = load(name, tmp_path)
    place = str(checkpoint.path)
    batches = [json.loads(line) for line in headwater("log", place, "--json").stdout.splitlines()]
    first, last = batches[0]["batch_id"], batches[-1]["batch_id"]
    assert json.loads(headwater("show", place, "HEAD", "--json").stdout)["batch_id"] == last
    before = headwater("state", place, "--json").stdout
    assert before
    headwater("diff", place, "HEAD~1", "HEAD")
    if not name.startswith("join"):
        headwater("bisect", place, "--where", "1 = 0")
        assert len(headwater("state", place, "--where", "1 = 1", "--json").stdout.splitlines()) == len(
            before.splitlines()
        )
    headwater("fsck", place)
    headwater("rewind", place, "--to", str(last - 1), "--yes", "--allow-missing-input")
    commit = checkpoint.path / "commits" / str(last)
    assert not commit.exists()
    headwater("undo", place, "--yes")
    assert commit.exists()
    assert headwater("state", place, "--json").stdout == before
    headwater("fork", place, str(tmp_path / "fork"), "--at", str(max(first, last - 1)))
    headwater("compact", place, "--yes")


def test_changing_state(headwater: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Restore points, edits, exports and imports need no extra either."""
    place = str(load("aggregation-changelog", tmp_path).path)
    headwater("keep", place, "before")
    assert "before" in headwater("kept", place).stdout
    rows = headwater("state", place, "--json").stdout.splitlines()
    headwater("export", place, "state.parquet")
    headwater("edit", place, "--delete", "--where", "user IS NULL", "--yes")
    assert len(headwater("state", place, "--json").stdout.splitlines()) < len(rows)
    assert headwater("history", place, "--key", "user=null", "--json").stdout
    headwater("import", "state.parquet", "--checkpoint", place, "--yes")
    assert sorted(headwater("state", place, "--json").stdout.splitlines()) == sorted(rows)


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("run", "word-count"), "spark"),
        (("check", "word-count"), "spark"),
        (("ui", "CKPT"), "ui"),
        (("topics",), "kafka"),
        (("demo",), "spark,kafka,ui"),
    ],
)
def test_a_missing_extra_is_named(
    arguments: tuple[str, ...],
    extra: str,
    headwater: Callable[..., subprocess.CompletedProcess[str]],
    corpus: Callable[[str], CorpusCheckpoint],
) -> None:
    """A verb that needs an extra names the command that installs it."""
    place = str(corpus("aggregation-hdfs").path)
    done = headwater(*(place if one == "CKPT" else one for one in arguments), exit_status=11)
    assert "error[missing-extra]" in done.stderr
    assert f"help: pip install 'headwater[{extra}]'" in done.stderr


def test_checkpoints_in_python(bare: Path, corpus: Callable[[str], CorpusCheckpoint], tmp_path: Path) -> None:
    """``Checkpoint`` reads and plans; the methods that need Spark name the extra when Spark is needed."""
    program = """
import sys
from headwater import Checkpoint
from headwater.errors import SetupProblem

checkpoint = Checkpoint(sys.argv[1])
user = checkpoint.state().to_pylist()[0]["key"]["user"]
assert checkpoint.key_history({"user": user}).num_rows
assert checkpoint.bisect("count > 0").first_batch is not None
assert checkpoint.fsck() and checkpoint.fork(sys.argv[2]).as_dict() and checkpoint._repr_html_()
plan = checkpoint.repartition(5)
for needs_spark in (lambda: checkpoint.late(job="word-count"), plan.apply):
    try:
        needs_spark()
    except SetupProblem as problem:
        print(problem.code, problem.remedy)
"""
    arguments = [str(corpus("aggregation-changelog").path), str(tmp_path / "fork")]
    done = subprocess.run(
        [bare / "python", "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["missing-extra pip install 'headwater[spark]'"] * 2, done.stderr
