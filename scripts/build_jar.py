"""Compile our Java classes into ``src/headwater/spark/internals/headwater-spark.jar``; needs a JDK, which users do not.

The jar is kept in the repository with a digest of its source inside, and a test holds the two together.
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
JAR = SPARK / "internals" / "headwater-spark.jar"
DIGEST = "META-INF/source.sha256"
WHEN = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is built


def source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.java")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jars = Path(pyspark.origin).parent / "jars"
    sources = [str(path) for path in sorted(SOURCES.rglob("*.java"))]
    with tempfile.TemporaryDirectory() as made:
        options = ["--release", "17", "-g:none", "-cp", f"{jars}/*", "-d", made]
        subprocess.run(["javac", *options, *sources], check=True)
        with zipfile.ZipFile(JAR, "w") as jar:
            jar.writestr(zipfile.ZipInfo(DIGEST, WHEN), source_digest())
            for path in sorted(Path(made).rglob("*.class")):
                jar.writestr(zipfile.ZipInfo(str(path.relative_to(made)), WHEN), path.read_bytes())


if __name__ == "__main__":
    main()
