"""What the peers need, in environments of their own, made on first use: nothing of theirs gets into Headwater's."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from headwater.jars.resolve import jar_paths

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".envs"
IVY_FILE = HERE / "peers" / "ivy.xml"
JAVA_SOURCES = HERE / "peers"

PACKAGES = {
    "flink": ("apache-flink==2.3.0",),
    "bytewax": ("bytewax==0.21.1", "confluent-kafka==2.16.1", "orjson==3.13.0"),
    "quixstreams": ("quixstreams==3.28.1",),
    "pathway": ("pathway==0.33.0",),
}


class Unavailable(Exception):
    """A peer that cannot be had here, with the installer's own last words."""


def python_of(peer: str) -> str:
    """The peer's own Python, with the pinned packages in it."""
    folder = ENVIRONMENTS / peer
    python, stamp = folder / "bin" / "python", folder / ".pinned"
    pinned = " ".join(PACKAGES[peer])
    if not stamp.exists() or stamp.read_text() != pinned:
        print(f"installing {pinned} into {folder.relative_to(HERE.parent)}", flush=True)
        _must([sys.executable, "-m", "venv", str(folder)])
        _must([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[peer]])
        stamp.write_text(pinned)
    return str(python)


def jars_of(configuration: str) -> list[Path]:
    """Jars of ``peers/ivy.xml``, fetched as Headwater fetches its own."""
    try:
        return jar_paths(configuration, ivy_file=IVY_FILE)
    except Exception as failure:
        raise Unavailable(str(failure)) from failure


def compiled(program: str) -> str:
    """The class path of a Java program of ``peers/``, compiled against the jars of Kafka Streams."""
    if shutil.which("javac") is None:
        raise Unavailable("there is no javac on this machine; a Java runtime alone cannot compile the program")
    source = JAVA_SOURCES / f"{program}.java"
    libraries = str(jars_of("streams")[0].parent / "*")
    folder = ENVIRONMENTS / "java" / hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    if not (folder / f"{program}.class").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _must(["javac", "-cp", libraries, "-d", str(folder), str(source)])
    return os.pathsep.join([str(folder), libraries])


def _must(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Unavailable("\n".join(words[-6:]))
