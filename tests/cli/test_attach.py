"""``headwater attach``: options for spark-submit."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import headwater
from cli.running import Command


def test_the_options_name_a_class_in_a_jar(command: Command) -> None:
    """The printed line and the JSON object have the same options; the jar contains the listener."""
    printed = shlex.split(command("attach").out)
    known = json.loads(command("attach", "--json").out)
    assert printed == known["options"] == ["--jars", known["jar"], "--conf", *printed[3:]]
    assert known["conf"] == {"spark.sql.streaming.streamingQueryListeners": known["listener"]}
    with zipfile.ZipFile(known["jar"]) as jar:
        assert f"{known['listener'].replace('.', '/')}.class" in jar.namelist()


def test_the_package_is_a_zip_file(tmp_path: Path) -> None:
    """With the package in a zip file, the jar is extracted once, and is the same."""
    package = Path(headwater.__file__).parent
    wanted = ["__init__.py", "jars/__init__.py", "jars/own_jar.py", "spark/__init__.py", "spark/internals/__init__.py"]
    archive = tmp_path / "headwater.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for name in [*wanted, "spark/internals/headwater-spark.jar"]:
            zipped.write(package / name, f"headwater/{name}")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from headwater.jars.own_jar import own_jar; print(own_jar())"
    settings = {"TMPDIR": str(tmp_path), "PATH": ""}
    found = set()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code, archive], env=settings, capture_output=True, text=True, check=True
        )
        found.add(done.stdout.strip())
    jar = Path(found.pop())
    assert not found
    assert jar.is_relative_to(tmp_path)
    assert jar.read_bytes() == (package / "spark" / "internals" / "headwater-spark.jar").read_bytes()
    shutil.rmtree(jar.parent)
