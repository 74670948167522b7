"""Environments of the peers, created on first use and separate from Headwater's."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
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
    "pyspark-4.1": ("pyspark==4.1.4",),
    "pyspark-4.3": ("pyspark==4.3.0",),
}


class PeerUnavailable(Exception):
    """A peer could not be installed; the message is the end of the installer's output."""


def peer_python(peer: str) -> str:
    """Return the Python of a peer's environment, with its pinned packages installed."""
    folder = ENVIRONMENTS / peer
    python, stamp = folder / "bin" / "python", folder / ".pinned"
    pinned = " ".join(PACKAGES[peer])
    if not stamp.exists() or stamp.read_text() != pinned:
        print(f"installing {pinned} into {folder.relative_to(HERE.parent)}", flush=True)
        _run_or_raise([sys.executable, "-m", "venv", str(folder)])
        _run_or_raise([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[peer]])
        stamp.write_text(pinned)
    return str(python)


def spark_python(version: str) -> str:
    """Return the Python of an environment with another PySpark, and all other packages of the current environment."""
    python = Path(peer_python(f"pyspark-{version}"))
    own = next(python.parents[1].glob("lib/python3*/site-packages"))
    # The file comes last on the path, so the PySpark of the environment is found first.
    (own / "zz_other_packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n{HERE.parent / 'src'}\n")
    return str(python)


def peer_jars(configuration: str) -> list[Path]:
    """Resolve a configuration of ``peers/ivy.xml`` into the cache of Headwater's own jars."""
    try:
        return jar_paths(configuration, ivy_file=IVY_FILE)
    except Exception as failure:
        raise PeerUnavailable(str(failure)) from failure


def compile_peer(program: str) -> str:
    """Compile a Java program of ``peers/`` against the Kafka Streams jars and return its class path."""
    if shutil.which("javac") is None:
        raise PeerUnavailable("javac was not found; compiling the program needs a JDK")
    source = JAVA_SOURCES / f"{program}.java"
    libraries = str(peer_jars("streams")[0].parent / "*")
    folder = ENVIRONMENTS / "java" / hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    if not (folder / f"{program}.class").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run_or_raise(["javac", "-cp", libraries, "-d", str(folder), str(source)])
    return os.pathsep.join([str(folder), libraries])


def _run_or_raise(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise PeerUnavailable("\n".join(lines[-6:]))
