"""How a checkpoint and a job are named on a command line, and how a shell completes their names."""

from __future__ import annotations

from typing import Annotated

import typer


def checkpoint_names(incomplete: str) -> list[str]:
    """The jobs that have a checkpoint in the usual place; a shell itself knows the folders."""
    from headwater.checkpoint.locate import known_names

    return [name for name in known_names() if name.startswith(incomplete)]


def job_names(incomplete: str) -> list[str]:
    """The jobs of the gallery."""
    from headwater.jobs.loading import gallery_names

    return [name for name in gallery_names() if name.startswith(incomplete)]


CheckpointName = Annotated[
    str,
    typer.Argument(
        metavar="CKPT", help="A folder, an object-store URL or a job's name.", autocompletion=checkpoint_names
    ),
]
JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="A gallery name, module:NAME or file.py:NAME.", autocompletion=job_names),
]
