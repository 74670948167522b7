"""A batch that Spark can neither finish nor leave out.

A file sink skips a batch that its log has: after a crash between that log and the commit, nothing of the batch runs again.
Checkpoint format 2 then asks in vain for the names of the state files that it should have written, at every start.
"""

from __future__ import annotations

from headwater.checkpoint.file_sink_log import FileSinkLog
from headwater.checkpoint.files import Files
from headwater.checkpoint.logs import CheckpointLogs


def stuck_batch(logs: CheckpointLogs, sink: Files | None) -> int | None:
    """The batch that is in the sink's log and in no commit, where that is more than Spark can bear."""
    if sink is None or not logs.is_format_two:
        return None
    newest, done = FileSinkLog(sink).names.latest, logs.commits.ids[-1]
    planned = logs.offsets.ids[-1] if logs.offsets.ids else done
    return newest if newest is not None and done < newest <= planned else None
