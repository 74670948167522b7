"""What a run deploys: the version of its job, and digests of the code."""

from __future__ import annotations

import hashlib
import inspect
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.runs import RunRecord, given_version
from headwater.jobs.job import Job
from headwater.spark.function_code import digest_of


def run_of(job: Job, files: FileTree, spark_version: str) -> RunRecord:
    """Return the record of a run that starts now."""
    last = CheckpointLogs(files).commits.latest
    return RunRecord(
        time.time_ns() // 1_000_000,
        0 if last is None else last + 1,
        given_version() or _package_version(job),
        digest_of(inspect.unwrap(job.transform)),
        {name: str(value) for name, value in job.settings.items()},
        spark_version,
    )


def _package_version(job: Job) -> str | None:
    """Return the name and version of the installed package that defines the job's function; None for a file."""
    top = (getattr(inspect.unwrap(job.transform), "__module__", None) or "").partition(".")[0]
    names = _distributions().get(top, ()) if top else ()
    return f"{names[0]} {metadata.version(names[0])}" if names else None


@cache
def _distributions() -> Mapping[str, Sequence[str]]:
    """Return the installed packages that provide each module. Finding them reads the files of all of them."""
    return metadata.packages_distributions()


def program_digest() -> str | None:
    """Return a digest of the program's own file; None if there is none, as in a notebook."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return f"program:{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}" if file else None
    except OSError:
        return None
