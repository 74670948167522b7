"""The Java installation that runs Spark, the broker and Ivy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.core.errors import SetupProblem

MIN_JAVA = 17
SPARK_JAVAS = (17, 21)
# Where packages, installers and version managers put Java on Linux and macOS.
PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/opt/java/*/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/usr/local/opt/openjdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
    "~/.jdks/*/bin/java",
)
REMEDY = (
    f"install Java {MIN_JAVA} or newer (Debian: apt-get install openjdk-{MIN_JAVA}-jre-headless; "
    f"macOS: brew install openjdk@{MIN_JAVA}) and add it to PATH, or set JAVA_HOME"
)


@dataclass(frozen=True)
class Java:
    """A Java installation that is new enough."""

    command: Path
    version: str

    @property
    def major(self) -> int:
        return major_version(self.version)


def require_java() -> Java:
    """Return the Java that runs Spark, or raise ``SetupProblem`` if there is none that can.

    It is the Java of JAVA_HOME or else of PATH, as for Spark itself. If that on PATH is missing or too old, it is the
    newest suitable one among those installed in the usual places. JAVA_HOME then names it for this process and its
    children. A JAVA_HOME that the user has set is not replaced; the error names the Java to set it to.
    """
    try:
        return _checked(_command())
    except SetupProblem as problem:
        found = _newest_installed()
        if found is None:
            raise problem from None
        home = str(found.command.parent.parent)
        if os.environ.get("JAVA_HOME"):
            problem.remedy = f"export JAVA_HOME={shlex.quote(home)}   (Java {found.version}, which is installed)"
            raise problem from None
    os.environ["JAVA_HOME"] = home
    return found


def _checked(command: Path) -> Java:
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupProblem(
            "java-missing", "java does not start", evidence={"command": command, "reason": error}, remedy=REMEDY
        ) from None
    output = done.stderr + done.stdout
    version = re.search(r'version "([^"]+)"', output)
    if done.returncode or not version:
        raise SetupProblem(
            "java-missing",
            "java does not report its version",
            evidence={"command": command, "output": " ".join(output.split())[:200]},
            remedy=REMEDY,
        )
    java = Java(command, version[1])
    if java.major < MIN_JAVA:
        raise SetupProblem(
            "java-too-old",
            f"Java {MIN_JAVA} or newer is required",
            evidence={"found": f"Java {java.version}", "at": command},
            remedy=REMEDY,
        )
    return java


def _newest_installed() -> Java | None:
    """Return the newest Java that Spark is built for, or else the oldest newer one."""
    commands = {command.resolve(): command for place in PLACES for command in sorted(_expanded(place))}
    found = []
    for command in commands.values():
        with suppress(SetupProblem):
            found.append(_checked(command))
    known = [java for java in found if java.major in SPARK_JAVAS]
    return max(known, key=_major, default=None) or min(found, key=_major, default=None)


def _major(java: Java) -> int:
    return java.major


def _expanded(place: str) -> Iterator[Path]:
    base = Path(place).expanduser()
    return Path(base.anchor).glob(str(base.relative_to(base.anchor)))


def major_version(version: str) -> int:
    """Return 17 for ``17.0.15``, 8 for ``1.8.0_402``, and 0 for text that is not a version."""
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
                "the folder in JAVA_HOME has no bin/java",
                evidence={"JAVA_HOME": home},
                remedy="set JAVA_HOME to a Java installation, or unset it to use the java on PATH",
            )
        return command
    on_path = shutil.which("java")
    if not on_path:
        raise SetupProblem("java-missing", "java is not on PATH", remedy=REMEDY)
    return Path(on_path)
