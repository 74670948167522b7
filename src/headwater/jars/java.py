"""The Java that runs Spark, the broker and Ivy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headwater.core.errors import SetupProblem

OLDEST_JAVA = 17
REMEDY = (
    f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install openjdk-{OLDEST_JAVA}-jre-headless; "
    f"macOS: brew install openjdk@{OLDEST_JAVA}) and have it on PATH, or set JAVA_HOME to it"
)


@dataclass(frozen=True)
class Java:
    """A Java that is new enough."""

    command: Path
    version: str

    @property
    def major(self) -> int:
        return major_version(self.version)


def require_java() -> Java:
    """JAVA_HOME's java, else the one on PATH, as Spark chooses it; ``SetupProblem`` when it will not do."""
    command = _command()
    try:
        told = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise SetupProblem(
            "java-missing", "java does not start", evidence={"tried": command, "reason": failure}, remedy=REMEDY
        ) from None
    output = told.stderr + told.stdout
    found = re.search(r'version "([^"]+)"', output)
    if told.returncode or not found:
        raise SetupProblem(
            "java-missing",
            "java does not tell its version",
            evidence={"tried": command, "said": " ".join(output.split())[:200]},
            remedy=REMEDY,
        )
    java = Java(command, found[1])
    if java.major < OLDEST_JAVA:
        raise SetupProblem(
            "java-too-old",
            f"Java {OLDEST_JAVA} or newer is needed",
            evidence={"found": f"Java {java.version}", "at": command},
            remedy=REMEDY,
        )
    return java


def major_version(version: str) -> int:
    """17 for ``17.0.15``, 8 for ``1.8.0_402``, 0 for what is not a version."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    if len(parts) == 2 and parts[0] == 1:
        return parts[1]
    return parts[0] if parts else 0


def _command() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        command = Path(home) / "bin" / "java"
        if not command.is_file():
            raise SetupProblem(
                "java-missing",
                "JAVA_HOME names a folder without bin/java",
                evidence={"JAVA_HOME": home},
                remedy="set JAVA_HOME to a Java installation, or unset it to use the java on PATH",
            )
        return command
    on_path = shutil.which("java")
    if not on_path:
        raise SetupProblem("java-missing", "there is no java on this machine's PATH", remedy=REMEDY)
    return Path(on_path)
