"""``headwater fork``: a second checkpoint that continues from a batch of the first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.app import CHANGE, app
from headwater.cli.checkpoint_options import CheckpointName, DryRun, PlanJson, open_to_change, print_plan
from headwater.cli.output import note


@app.command(rich_help_panel=CHANGE)
def fork(
    checkpoint: CheckpointName,
    into: Annotated[str, typer.Argument(metavar="INTO", help="New folder or URL, missing or empty.")],
    at: Annotated[str | None, typer.Option(metavar="B", help="Last batch of the fork; default: HEAD.")] = None,
    sink: Annotated[
        str | None, typer.Option(metavar="files:DIR", help="New file sink for the fork; its log is created.")
    ] = None,
    dry_run: DryRun = False,
    as_json: PlanJson = False,
) -> None:
    """Create a second checkpoint from an existing one, as of a batch.

    Use it to run a changed job next to the original one. The original checkpoint is not modified.

    Example:
      headwater fork browser-stats-stateful .headwater/checkpoints/try-it --at 41
    """
    from headwater.checkpoint import revisions
    from headwater.checkpoint.history import History
    from headwater.checkpoint.locate import open_files
    from headwater.checkpoint.record import FILES, sink_of
    from headwater.core.errors import UsageProblem
    from headwater.timemachine.fork import plan_fork
    from headwater.views.plans import fork_lines

    files = open_to_change(checkpoint)
    history = History(files)
    batch = revisions.resolve(at or "HEAD", history.batch_ids, history.committed_at_ms)
    target = open_files(into if "://" in into else str(Path(into).absolute()))
    if sink is not None and not sink.startswith(FILES):
        raise UsageProblem(
            "bad-option", "--sink takes a file sink; other sinks need no preparation", remedy="--sink files:DIR"
        )
    folder = sink_of(files, sink) if sink else None
    plan = plan_fork(files, target, at=batch, sink=folder)
    print_plan(plan.as_dict(), fork_lines(plan), as_json=as_json)
    if dry_run:
        return
    plan.apply()
    note(f"done. To run it: headwater run JOB --checkpoint {into}")
