"""What a file sink has committed. A stopped batch may leave files in the folder that no reader of the sink sees."""

from __future__ import annotations

from pathlib import Path

from headwater.checkpoint.file_logs import FileSinkLog
from headwater.checkpoint.local_tree import LocalTree


def committed_files(folder: Path) -> list[Path]:
    """Return the data files that the log of a sink names."""
    log = FileSinkLog(LocalTree(folder))
    logged = {entry.path.removeprefix("file://") for number in log.names.by_id for entry in log.read(number).entries}
    return sorted(map(Path, logged))


def committed_lines(folder: Path) -> list[str]:
    """Return the lines of the files that a sink has committed, sorted."""
    return sorted(line for file in committed_files(folder) for line in file.read_text().splitlines())
