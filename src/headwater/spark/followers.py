"""What accompanies a running job: each follower receives every batch, and sees the failure that ends the job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from headwater.checkpoint.failures import FailureRecord, add_failure
from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.record import ProgressRecord
from headwater.core.errors import HeadwaterError, InternalError

OnBatch: TypeAlias = Callable[[ProgressRecord], None]
Warn: TypeAlias = Callable[[str], None]
Follower: TypeAlias = Callable[[FileTree, Warn], AbstractContextManager[OnBatch]]
"""Starts to follow a job on a checkpoint. Its context ends with the query, with the job's failure if it failed.

The function that the context yields is called after each batch, from a thread of Spark, and has to return quickly.
"""


@contextmanager
def recording_failure(files: FileTree) -> Iterator[OnBatch]:
    """Record the failure that ends a job, in its checkpoint."""
    last: list[int] = []

    def remember(batch: ProgressRecord) -> None:
        last[:] = [batch.batch_id]

    try:
        yield remember
    except Exception as error:
        failure = error if isinstance(error, HeadwaterError) else InternalError(error)
        at_ms = time.time_ns() // 1_000_000
        add_failure(files, FailureRecord(at_ms, failure.code, failure.problem, last[0] if last else None))
        raise


def passing_batches(on_batch: OnBatch) -> Follower:
    """Return a follower that passes each batch to a function."""

    @contextmanager
    def follow(files: FileTree, warn: Warn) -> Iterator[OnBatch]:  # noqa: ARG001  every follower takes both
        yield on_batch

    return follow
