"""Fetch jars with the Ivy that comes with PySpark."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from pathlib import Path

from headwater.core.errors import SetupProblem
from headwater.jars.java import require_java
from headwater.jars.versions import ivy_variables, pyspark_folder

SETTINGS_VARIABLE = "HEADWATER_IVY_SETTINGS"
# Ivy prints while it finds modules and receives bytes; silence for this long means that the network drops packets.
STALL_SECONDS = 20.0
CONNECT_TIMEOUT_MS = 5_000
NO_CONNECTION = re.compile(r"Host \S+ not found|Server access [Ee]rror|timed out|[Cc]onnection refused|unreachable")


def user_settings() -> Path | None:
    """Return the user's ``ivysettings.xml``, which can replace the public repository by a mirror; None if there is none."""
    path = os.environ.get(SETTINGS_VARIABLE)
    if path:
        if not Path(path).is_file():
            raise SetupProblem(
                "ivy-settings-missing",
                f"{SETTINGS_VARIABLE} names a file that does not exist",
                evidence={SETTINGS_VARIABLE: path},
                remedy=f"unset {SETTINGS_VARIABLE}, or set it to an ivysettings.xml",
            )
        return Path(path)
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    in_config = config_home / "headwater" / "ivysettings.xml"
    return in_config if in_config.is_file() else None


def resolve(ivy_file: Path, configuration: str, into: Path, *, scratch: Path) -> None:
    """Fetch a configuration's jars into a folder, or raise ``SetupProblem`` within seconds if they cannot be fetched."""
    settings = user_settings()
    command = [
        str(require_java().command),
        "-XX:TieredStopAtLevel=1",
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_TIMEOUT_MS}",
        *(f"-D{name}={value}" for name, value in ivy_variables().items()),
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", str(settings.absolute())] if settings else []),
        *("-ivy", str(ivy_file), "-confs", configuration, "-cache", str(scratch)),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        output, stalled = _read_output(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if stalled or process.returncode or not any(into.glob("*.jar")):
        raise _failure(configuration, output, settings, stalled=stalled)


def _ivy_jar() -> Path:
    jars = sorted((pyspark_folder() / "jars").glob("ivy-*.jar"))
    if not jars:
        raise SetupProblem(
            "pyspark-incomplete",
            "PySpark's Ivy jar is missing",
            evidence={"folder": pyspark_folder() / "jars"},
            remedy="pip install --force-reinstall pyspark",
        )
    return jars[-1]


def _read_output(process: subprocess.Popen[bytes]) -> tuple[str, bool]:
    """Return everything that the process printed, and whether it stalled: printed nothing for ``STALL_SECONDS``."""
    assert process.stdout is not None
    chunks: list[bytes] = []
    last_output_at = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() - last_output_at < STALL_SECONDS:
            if not selector.select(timeout=1.0):
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                process.wait()
                return b"".join(chunks).decode(errors="replace"), False
            chunks.append(chunk)
            last_output_at = time.monotonic()
    return b"".join(chunks).decode(errors="replace"), True


def _failure(configuration: str, output: str, settings: Path | None, *, stalled: bool) -> SetupProblem:
    missing = sorted(set(re.findall(r"::\s+(\S+#\S+): ", output)))
    evidence: dict[str, object] = {"settings": settings or "Ivy's default (the public Maven repository)"}
    no_connection = NO_CONNECTION.search(output)
    if stalled or no_connection or not re.search(r"\bfound \S+#", output):
        evidence["reason"] = no_connection[0] if no_connection and not stalled else "no answer"
        problem = f"the jars for {configuration} are not in the cache, and no repository can be reached"
    else:
        evidence["missing"] = ", ".join(missing) or " ".join(output.split())[-300:]
        problem = f"the repository does not have all the jars for {configuration}"
    return SetupProblem(
        "jars-unavailable",
        problem,
        evidence=evidence,
        remedy=f"go online and run `headwater jars --configuration {configuration}`, "
        f"or set up a mirror with {SETTINGS_VARIABLE}=path/to/ivysettings.xml",
    )
