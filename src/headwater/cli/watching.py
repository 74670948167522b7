"""What ``run`` offers to those who watch: the page, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.output import note

if TYPE_CHECKING:
    from headwater.checkpoint.filetree import FileTree
    from headwater.spark.progress import BatchProgress

Hear = Callable[["BatchProgress"], None]


@contextmanager
def watched(job: str, checkpoint: str, *, page: bool, metrics: str | None) -> Iterator[Hear]:
    """Serve what was asked for while the block runs; what comes out of it is to be told of every batch."""
    if page:
        _serve_page(job, checkpoint)
    if metrics is None:
        yield lambda _: None
        return
    from headwater.spark.metrics import JobMetrics, MetricsServer
    from headwater.spark.progress import record_of_batch

    counted = JobMetrics(job, _files(checkpoint))
    with MetricsServer(counted, metrics) as server:
        note(f"metrics: {server.url}")
        yield lambda batch: counted.add(record_of_batch(batch))


def _files(checkpoint: str) -> FileTree:
    from headwater.checkpoint.locate import open_files

    return open_files(checkpoint)


def _serve_page(job: str, checkpoint: str) -> None:
    """In a thread of this process, so that it ends with the job, whatever ends the job."""
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.cli.ui import late_records
    from headwater.web.server import PageServer, Place

    name = job if Path(checkpoint).name == job else f"{job} ({Path(checkpoint).name})"
    server = PageServer([Place(name, lambda: open_checkpoint(checkpoint))], find_records=late_records)
    server.start()
    note(f"page: {server.url}")
