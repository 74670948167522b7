"""Fetching jars with the Ivy that PySpark ships."""

from __future__ import annotations

import importlib.util
import os
import re
import selectors
import subprocess
import time
from pathlib import Path

from headwater.core.errors import SetupProblem
from headwater.jars.java import require_java

SETTINGS_VARIABLE = "HEADWATER_IVY_SETTINGS"
# Ivy prints as each module is found and as bytes come; silence this long means a network that swallows packets.
STALL_SECONDS = 20.0
CONNECT_TIMEOUT_MS = 5_000
NO_CONNECTION = re.compile(r"Host \S+ not found|Server access [Ee]rror|timed out|[Cc]onnection refused|unreachable")


def pyspark_folder() -> Path:
    """Where PySpark is installed, found without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupProblem(
            "pyspark-missing", "PySpark is not installed", remedy="pip install headwater (it brings PySpark)"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def user_settings() -> Path | None:
    """The user's own ``ivysettings.xml``, by which a mirror replaces the public repository."""
    named = os.environ.get(SETTINGS_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise SetupProblem(
                "ivy-settings-missing",
                f"{SETTINGS_VARIABLE} names a file that is not there",
                evidence={SETTINGS_VARIABLE: named},
                remedy=f"unset {SETTINGS_VARIABLE}, or set it to an ivysettings.xml",
            )
        return Path(named)
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    in_config = config_home / "headwater" / "ivysettings.xml"
    return in_config if in_config.is_file() else None


def resolve(ivy_file: Path, configuration: str, into: Path, *, scratch: Path) -> None:
    """Fetch a configuration's jars into a folder, or raise ``SetupProblem`` within seconds when none can be had."""
    settings = user_settings()
    command = [
        str(require_java().command),
        "-XX:TieredStopAtLevel=1",
        f"-Dsun.net.client.defaultConnectTimeout={CONNECT_TIMEOUT_MS}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", str(settings.absolute())] if settings else []),
        *("-ivy", str(ivy_file), "-confs", configuration, "-cache", str(scratch)),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        output, stalled = _read_until_quiet(process)
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
            "PySpark's folder has no Ivy jar",
            evidence={"looked in": pyspark_folder() / "jars"},
            remedy="pip install --force-reinstall pyspark",
        )
    return jars[-1]


def _read_until_quiet(process: subprocess.Popen[bytes]) -> tuple[str, bool]:
    """All that the process printed, and whether it fell silent for so long that waiting on is no use."""
    assert process.stdout is not None
    chunks: list[bytes] = []
    heard_at = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() - heard_at < STALL_SECONDS:
            if not selector.select(timeout=1.0):
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                process.wait()
                return b"".join(chunks).decode(errors="replace"), False
            chunks.append(chunk)
            heard_at = time.monotonic()
    return b"".join(chunks).decode(errors="replace"), True


def _failure(configuration: str, output: str, settings: Path | None, *, stalled: bool) -> SetupProblem:
    missing = sorted(set(re.findall(r"::\s+(\S+#\S+): ", output)))
    evidence: dict[str, object] = {"settings": settings or "Ivy's own (the public Maven repository)"}
    no_connection = NO_CONNECTION.search(output)
    if stalled or no_connection or not re.search(r"\bfound \S+#", output):
        evidence["reason"] = no_connection[0] if no_connection and not stalled else "no answer"
        problem = f"the jars for {configuration} are not on this machine yet, and no repository can be reached"
    else:
        evidence["missing"] = ", ".join(missing) or " ".join(output.split())[-300:]
        problem = f"the repository does not have all the jars for {configuration}"
    return SetupProblem(
        "jars-unavailable",
        problem,
        evidence=evidence,
        remedy=f"connect to the network and run `headwater jars --configuration {configuration}`; "
        f"a mirror is named by {SETTINGS_VARIABLE}=path/to/ivysettings.xml",
    )
