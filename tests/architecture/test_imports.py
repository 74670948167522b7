"""Import rules: a package imports only the packages below it, and few packages import Spark."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headwater"

ALLOWED = {
    "core": set(),
    "checkpoint": {"core"},
    "statefiles": {"core", "checkpoint"},
    "lakehouse": {"core", "checkpoint"},
    "timemachine": {"core", "checkpoint", "statefiles", "lakehouse", "kafka"},
    "migration": {"core", "checkpoint", "statefiles", "lakehouse", "timemachine"},
    "fleet": {"core", "checkpoint", "statefiles", "lakehouse", "timemachine"},
    "views": {"core", "checkpoint", "statefiles", "lakehouse", "timemachine", "migration", "fleet"},
    "jars": {"core"},
    "kafka": {"core", "jars"},
    "guards": {"core", "checkpoint", "views", "kafka"},
    "alerts": {"core", "checkpoint", "views", "guards"},
    "datagen": {"core"},
    "formats": {"core"},
    "jobs": {"core", "formats"},
    "spark": {
        "core",
        "checkpoint",
        "statefiles",
        "lakehouse",
        "timemachine",
        "migration",
        "fleet",
        "views",
        "jars",
        "formats",
        "jobs",
        "kafka",
        "guards",
        "alerts",
    },
    "testing": {
        "core",
        "checkpoint",
        "statefiles",
        "lakehouse",
        "timemachine",
        "migration",
        "fleet",
        "views",
        "jars",
        "formats",
        "jobs",
        "kafka",
        "guards",
        "alerts",
        "spark",
    },
    "web": {
        "core",
        "checkpoint",
        "statefiles",
        "lakehouse",
        "timemachine",
        "migration",
        "fleet",
        "views",
        "kafka",
        "guards",
        "alerts",
    },
}
IMPORT_SPARK = {"spark", "jobs", "testing"}
# A package may call a higher one that is built on it, if it imports it only when it is called.
DEFERRED = {
    ("jobs/job.py", "headwater.spark.programs"),
    ("jobs/job.py", "headwater.spark.running"),
    ("spark/running.py", "headwater.api"),
}


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    """Return the nodes of a file that the tests below look at."""
    tree = ast.parse(file.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom | ast.Attribute)]


def imports_of(file: Path, *, at_import: bool = False) -> Iterator[str]:
    """Yield the modules that a file imports; with ``at_import``, only those that importing the file imports."""
    for node in _run_at_import(ast.parse(file.read_text())) if at_import else nodes_of(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: imports are absolute here"
            yield node.module


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not is_for_types:
            yield from _run_at_import(child)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_package_imports_only_lower_packages(package: str) -> None:
    """A package imports only the packages that it is built on."""
    for file in (SOURCE / package).rglob("*.py"):
        for name in imports_of(file):
            parts = name.split(".")
            if (str(file.relative_to(SOURCE)), name) in DEFERRED:
                assert name not in imports_of(file, at_import=True), f"{name} is not imported within a function"
            elif parts[0] == "headwater" and len(parts) > 1:
                assert parts[1] == package or parts[1] in ALLOWED[package], f"{file.relative_to(SOURCE)} imports {name}"


def test_only_three_packages_import_spark() -> None:
    """Only spark, jobs and testing import pyspark."""
    for file in SOURCE.rglob("*.py"):
        package = file.relative_to(SOURCE).parts[0]
        if package in IMPORT_SPARK:
            continue
        heavy = [name for name in imports_of(file) if name.split(".")[0] in {"pyspark", "py4j"}]
        assert not heavy, f"{file.relative_to(SOURCE)} imports {heavy}"


@pytest.mark.parametrize("package", ["core", "checkpoint"])
def test_lowest_packages_need_only_the_standard_library(package: str) -> None:
    """core needs only the standard library; checkpoint may also use fsspec and google_crc32c."""
    allowed = {"headwater", "__future__"} | ({"fsspec", "google_crc32c"} if package == "checkpoint" else set())
    for file in (SOURCE / package).rglob("*.py"):
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
    """Attributes of PySpark that lead into private classes are used only in ``spark/internals``."""
    for file in SOURCE.rglob("*.py"):
        if file.is_relative_to(SOURCE / "spark" / "internals"):
            continue
        used = {node.attr for node in nodes_of(file) if isinstance(node, ast.Attribute)}
        assert not used & PRIVATE_SPARK, f"{file.relative_to(SOURCE)} uses {used & PRIVATE_SPARK}"


def test_only_the_kafka_package_uses_the_kafka_client() -> None:
    """Only ``kafka`` imports confluent_kafka, so that every connection uses the same security options."""
    for file in SOURCE.rglob("*.py"):
        if file.is_relative_to(SOURCE / "kafka"):
            continue
        clients = [name for name in imports_of(file) if name.split(".")[0] == "confluent_kafka"]
        assert not clients, f"{file.relative_to(SOURCE)} imports {clients}"
