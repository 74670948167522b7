"""Who may import whom. Inner rooms know nothing of outer ones, and few rooms know Spark."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headwater"

ALLOWED = {
    "core": set(),
    "checkpoint": {"core"},
    "statefiles": {"core", "checkpoint"},
    "timemachine": {"core", "checkpoint", "statefiles"},
    "views": {"core", "checkpoint", "statefiles", "timemachine"},
    "jars": {"core"},
    "kafka": {"core", "jars"},
    "datagen": {"core"},
    "jobs": {"core"},
    "spark": {"core", "checkpoint", "statefiles", "timemachine", "views", "jars", "jobs", "kafka"},
    "testing": {"core", "checkpoint", "statefiles", "timemachine", "views", "jars", "jobs", "kafka", "spark"},
    "web": {"core", "checkpoint", "statefiles", "timemachine", "views", "kafka"},
}
KNOW_SPARK = {"spark", "jobs", "testing"}


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: imports are absolute here"
            yield node.module


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_room_imports_only_inner_rooms(room: str) -> None:
    """A room imports only the rooms that it is built upon."""
    for file in (SOURCE / room).rglob("*.py"):
        for name in imports_of(file):
            parts = name.split(".")
            if parts[0] == "headwater" and len(parts) > 1:
                assert parts[1] == room or parts[1] in ALLOWED[room], f"{file.relative_to(SOURCE)} imports {name}"


def test_only_three_rooms_know_spark() -> None:
    """pyspark is imported by spark, jobs and testing alone."""
    for file in SOURCE.rglob("*.py"):
        room = file.relative_to(SOURCE).parts[0]
        if room in KNOW_SPARK:
            continue
        heavy = [name for name in imports_of(file) if name.split(".")[0] in {"pyspark", "py4j"}]
        assert not heavy, f"{file.relative_to(SOURCE)} imports {heavy}"


@pytest.mark.parametrize("room", ["core", "checkpoint"])
def test_inner_rooms_need_only_the_standard_library(room: str) -> None:
    """core needs nothing but the standard library; checkpoint may also use fsspec and google_crc32c."""
    allowed = {"headwater", "__future__"} | ({"fsspec", "google_crc32c"} if room == "checkpoint" else set())
    for file in (SOURCE / room).rglob("*.py"):
        for name in imports_of(file):
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top in allowed, f"{file.relative_to(SOURCE)} imports {name}"


def test_help_starts_without_heavy_imports() -> None:
    """``headwater --help`` loads neither Spark nor pandas nor Arrow."""
    code = (
        "import sys; sys.argv = ['headwater', '--help']\n"
        "from headwater.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'pyspark', 'py4j', 'pandas', 'pyarrow', 'duckdb', 'nicegui', 'confluent_kafka'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


PRIVATE_SPARK = {
    "_jvm",
    "_jdf",
    "_jsc",
    "_jsq",
    "_jsqm",
    "_jsparkSession",
    "_jc",
    "_gateway",
    "_streamingCheckpointManager",
}


def test_private_spark_stays_in_internals() -> None:
    """Attributes of PySpark that lead into private classes are used in ``spark/internals`` alone."""
    for file in SOURCE.rglob("*.py"):
        if file.is_relative_to(SOURCE / "spark" / "internals"):
            continue
        used = {node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)}
        assert not used & PRIVATE_SPARK, f"{file.relative_to(SOURCE)} uses {used & PRIVATE_SPARK}"


def test_only_the_kafka_package_uses_the_kafka_client() -> None:
    """confluent_kafka is imported in ``kafka`` alone, so that every connection uses the same security options."""
    for file in SOURCE.rglob("*.py"):
        if file.is_relative_to(SOURCE / "kafka"):
            continue
        clients = [name for name in imports_of(file) if name.split(".")[0] == "confluent_kafka"]
        assert not clients, f"{file.relative_to(SOURCE)} imports {clients}"
