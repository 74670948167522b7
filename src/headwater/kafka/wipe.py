"""Removal of a local broker's data folder, with all topics, logs and certificates."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headwater.core.errors import SetupProblem
from headwater.kafka.broker import locked, stop_process
from headwater.kafka.broker_settings import DATA_NAMES, DEFAULT_DATA, SERVER_FILE, is_server_file


def wipe(data: Path = DEFAULT_DATA) -> int | None:
    """Stop the broker, remove its data folder, and return its process id; None if it was not running."""
    data = data.resolve()
    check_wipe(data)
    with locked(data):
        pid = stop_process(data)
        # The folder disappears at once, so that an interrupted removal leaves no broker with half of its topics.
        removed = data.with_name(f".{data.name}.wiped-{os.getpid()}")
        try:
            data.rename(removed)
            shutil.rmtree(removed)
        except OSError as failure:
            raise SetupProblem(
                "data-unwritable",
                "cannot remove the broker's data folder",
                evidence={"data": removed if removed.exists() else data, "reason": failure.strerror or failure},
                remedy="remove the folder by hand",
            ) from None
    return pid


def check_wipe(data: Path = DEFAULT_DATA) -> None:
    """Raise unless the folder is the data folder of a Headwater broker and contains nothing else."""
    data = data.resolve()
    names = {entry.name for entry in data.iterdir()} if data.is_dir() else set()
    if not is_server_file(data / SERVER_FILE):
        raise SetupProblem(
            "not-broker-data",
            "the folder is not the data folder of a Headwater broker, so it is not removed",
            evidence={"data": data},
            remedy="name the data folder of the broker: --data DIR",
        )
    foreign = sorted(names - DATA_NAMES)
    if foreign:
        more = f" and {len(foreign) - 8} more" if len(foreign) > 8 else ""
        raise SetupProblem(
            "not-broker-data",
            "the folder also contains files that are not the broker's, so it is not removed",
            evidence={"data": data, "other files": ", ".join(foreign[:8]) + more},
            remedy="move these files to another folder, then run the same command again",
        )
