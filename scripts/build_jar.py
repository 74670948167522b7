"""Compile Headwater's Java classes into ``src/headwater/spark/internals/headwater-spark.jar``; needs a JDK, which users do not.

The jar also has the Python of Headwater's workers, as a package of its own, for executors without Headwater. The jar is
committed, with a digest of its sources inside. A test checks that the two match.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

SPARK = Path(__file__).parent.parent / "src" / "headwater" / "spark"
SOURCES = SPARK / "internals" / "java"
WORKERS = SPARK / "internals" / "workers"
JAR = SPARK / "internals" / "headwater-spark.jar"
DIGEST = "META-INF/source.sha256"
FIXED_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the jar has the same bytes whenever it is built


def source_digest() -> str:
    digest = hashlib.sha256()
    for path in [*sorted(SOURCES.rglob("*.java")), *sorted(WORKERS.glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def worker_modules() -> dict[str, str]:
    """Return the modules of Headwater's workers under the name of their package on executors."""
    return {
        f"headwater_workers/{path.name}": path.read_text().replace(
            "headwater.spark.internals.workers", "headwater_workers"
        )
        for path in sorted(WORKERS.glob("*.py"))
    }


def main() -> None:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jars = Path(pyspark.origin).parent / "jars"
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    with tempfile.TemporaryDirectory() as classes:
        options = ["--release", "17", "-g:none", "-cp", f"{jars}/*", "-d", classes]
        subprocess.run(["javac", *options, *sources], check=True)
        with zipfile.ZipFile(JAR, "w") as jar:
            jar.writestr(zipfile.ZipInfo(DIGEST, FIXED_TIME), source_digest())
            for name, text in worker_modules().items():
                jar.writestr(zipfile.ZipInfo(name, FIXED_TIME), text)
            for path in sorted(Path(classes).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(path.relative_to(classes)), FIXED_TIME), path.read_bytes())


if __name__ == "__main__":
    main()
