"""Plan a rewind to what a user names: a batch, a revision or a restore point. The front of all rewinds.

The command line, the page and ``Checkpoint`` plan through ``plan_rewind_to``, so that each of them looks at the same
sources, in the same brokers, and refuses the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.restore_points import RestorePoint, locate_batch
from headwater.kafka.offsets import earliest_offsets
from headwater.kafka.retention import retention_from
from headwater.timemachine.effects import AskRetention, EarliestOffsets
from headwater.timemachine.journal import refuse_if_pending
from headwater.timemachine.restore import is_in_checkpoint, plan_restore
from headwater.timemachine.rewind import RewindPlan, WithEngine, endpoints_of, plan_query_rewind, plan_with_retention


def rewind_target(files: FileTree, to: int | str | None) -> int | RestorePoint | None:
    """Return the last batch to keep: a number as it is, a revision such as ``HEAD~3`` resolved, or a restore point."""
    if to is None or isinstance(to, int) or to.isdigit():
        return None if to is None else int(to)
    located = locate_batch(files, to)
    return located.point or located.batch_id


def plan_rewind_to(
    files: FileTree,
    target: int | RestorePoint | None,
    *,
    replan: bool = False,
    sink: str | None = None,
    sources: Sequence[str] = (),
    keep_foreign: bool = False,
    with_engine: WithEngine = lambda table: table,
    ask_kafka: EarliestOffsets | None = earliest_offsets,
    ask_retention: AskRetention = retention_from,
) -> RewindPlan:
    """Plan a rewind to a batch, or to a restore point: a restore if the batch is no longer in the checkpoint.

    None undoes all batches. The brokers of Kafka sources are asked whether, and for how long, they have the input. For the
    other options see ``plan_query_rewind``.
    """
    refuse_if_pending(files)
    if not isinstance(target, RestorePoint) or is_in_checkpoint(files, target):
        plan = plan_query_rewind(
            files,
            to=target.batch_id if isinstance(target, RestorePoint) else target,
            replan=replan,
            sink=sink,
            sources=sources,
            ask_kafka=ask_kafka,
            keep_foreign=keep_foreign,
            with_engine=with_engine,
        )
    else:
        plan = plan_restore(
            files,
            target,
            replan=replan,
            ask_kafka=ask_kafka,
            keep_foreign=keep_foreign,
            **endpoints_of(files, sink, sources, with_engine),
        )
    return plan_with_retention(plan, ask_retention)
