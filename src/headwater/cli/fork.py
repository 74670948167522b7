"""``headwater fork``: a second checkpoint next to the first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.names import CheckpointName
from headwater.cli.output import json_line, note, say


@app.command(rich_help_panel=CHANGE)
def fork(
    checkpoint: CheckpointName,
    into: Annotated[str, typer.Argument(metavar="INTO", help="A folder or URL that is empty or not there yet.")],
    at: Annotated[
        str | None, typer.Option(metavar="B", help="The last batch that the fork has; default: HEAD.")
    ] = None,
    sink: Annotated[
        str | None, typer.Option(metavar="files:DIR", help="A new file sink for the fork, made ready for it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and change nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The plan as one JSON object.")] = False,
) -> None:
    """Make a second checkpoint at a batch, to run a changed job next to the old one. The original is not touched.

    Example:
      headwater fork browser-stats-stateful .headwater/checkpoints/try-it --at 41
    """
    from headwater.checkpoint import revisions
    from headwater.checkpoint.history import History
    from headwater.checkpoint.locate import open_checkpoint, open_files
    from headwater.checkpoint.record import FILES, folder_of
    from headwater.core.errors import UsageProblem
    from headwater.timemachine.executor import refuse_if_pending
    from headwater.timemachine.fork import carry_out_fork, plan_fork

    files = open_checkpoint(checkpoint)
    refuse_if_pending(files)
    history = History(files)
    batch = revisions.resolve(at or "HEAD", history.batch_ids, history.committed_at_ms)
    target = open_files(into if "://" in into else str(Path(into).absolute()))
    if sink is not None and not sink.startswith(FILES):
        raise UsageProblem("bad-option", "only a file sink has to be made ready", remedy="--sink files:DIR")
    folder = open_files(folder_of(sink)) if sink else None
    plan = plan_fork(files, target, at=batch, new_sink=folder is not None)
    if as_json:
        json_line(plan.as_dict())
    else:
        say(
            f"fork {files.location} at batch {batch} into {target.location}: {len(plan.shared)} files shared, "
            f"{len(plan.written)} written"
        )
        for warning in plan.warnings:
            note(f"warning: {warning}")
    if dry_run:
        return
    carry_out_fork(plan, target, folder)
    note(f"done: headwater run JOB --checkpoint {into}")
