"""``headwater kept``: the restore points of a checkpoint."""

from __future__ import annotations

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import CheckpointName
from headwater.cli.output import json_lines, note, table


@app.command(rich_help_panel=INSPECT)
def kept(checkpoint: CheckpointName, as_json: JsonLines = False) -> None:
    """Show the restore points of a checkpoint.

    OWN is the disk space that dropping the point would free. SHARED is that of files which the checkpoint or another point
    has too. Does not start Spark.

    Example:
      headwater kept browser-stats-stateful
    """
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.checkpoint.restore_points import restore_points
    from headwater.views.kept import COLUMNS, point_as_dict, point_cells

    files = open_checkpoint(checkpoint)
    points = restore_points(files)
    if as_json:
        json_lines(point_as_dict(files, point) for point in points)
        return
    if not points:
        note(f"no restore points. To make one: headwater keep {checkpoint}")
        return
    table(COLUMNS, [point_cells(files, point) for point in points])
