"""Headwater's own jar, which is part of the package."""

from __future__ import annotations

import hashlib
import os
import pkgutil
import tempfile
from pathlib import Path

HEADWATER_JAR = Path(__file__).parents[1] / "spark" / "internals" / "headwater-spark.jar"
LISTENER = "headwater.streaming.CheckpointListener"


def own_jar() -> Path:
    """Return the jar as a file. It is extracted if the package is in a zip file, as with ``spark-submit --py-files``."""
    if HEADWATER_JAR.exists():
        return HEADWATER_JAR
    data = pkgutil.get_data("headwater.spark.internals", HEADWATER_JAR.name)
    assert data is not None
    folder = Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():  # another user must not be able to replace code that this process loads
        folder = Path(tempfile.mkdtemp(prefix="headwater-"))
    jar = folder / f"headwater-spark-{hashlib.sha256(data).hexdigest()[:16]}.jar"
    draft = jar.with_suffix(f".{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(jar)
    return jar
