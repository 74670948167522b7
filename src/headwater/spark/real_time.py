"""The real-time trigger: the checkpoints that it runs on, and the task slots that it needs.

A batch of the real-time trigger lasts as long as the trigger says. The tasks of all its stages run at the same time, and
each occupies a slot until the batch ends. A query that gets fewer slots than tasks would not read all partitions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import CheckpointUnreadable, JobRefused
from headwater.jobs.endpoints import Kafka
from headwater.jobs.job import Job
from headwater.kafka.offsets import Partition
from headwater.kafka.options import Connection, UnmappedOption
from headwater.kafka.topics import list_partitions
from headwater.spark.internals import real_time
from headwater.spark.internals.gateway import conf_of_spark_submit
from headwater.spark.internals.plans import Plan, analyzed
from headwater.spark.ownership import Run
from headwater.spark.preflight import topic_names
from headwater.spark.prepared import PreparedJob
from headwater.spark.real_time_checks import STATEFUL, is_real_time
from headwater.spark.session import CHECKPOINT_FORMAT, DEFAULT_MASTER, default_conf

PARTITIONS = "spark.sql.shuffle.partitions"
# Spark refuses a batch if tasks of other queries leave too few slots at its start, even for a moment.
SLOT_CHECK = "spark.scheduler.pipelinedGroup.slotCheck.enabled"
REPARTITIONS = ("Repartition", "RepartitionByExpression")
# Shuffles for which a session gets slots before the plan is known: a repartition and two stateful operators.
EXPECTED_SHUFFLES = 3


def real_time_settings(prepared: PreparedJob, files: FileTree, checkpoint: str) -> dict[str, str]:
    """Return the settings with which a job starts on a checkpoint if its trigger is real time; none for other triggers.

    Refuse a checkpoint of format 1, and a master with too few task slots.
    """
    if not is_real_time(prepared.job):
        return {}
    _check_slots(prepared, files)
    if not real_time.probe(prepared.spark):  # the real-time trigger of Spark 4.2 is indifferent to the format
        return {}
    _check_format(prepared.job, files, checkpoint)
    return {CHECKPOINT_FORMAT: "2"}


def _check_format(job: Job, files: FileTree, checkpoint: str) -> None:
    """Refuse a checkpoint of format 1.

    Offsets are logged after the output in real time, so a batch that was interrupted runs again with others. In format 1
    its state files would get the names of those that the first attempt left behind.
    """
    commits = CheckpointLogs(files).commits
    last = commits.get(commits.ids[-1]) if commits.ids else None
    if last is None or last.version > 1:
        return
    raise JobRefused(
        "checkpoint-format",
        f"{job.name} cannot use the real-time trigger on a checkpoint of format 1",
        evidence={"checkpoint": checkpoint, "needed": "checkpoint format 2"},
        remedy=f"headwater migrate {checkpoint} --checkpoint-format 2   (or choose a new --checkpoint)",
    )


def _check_slots(prepared: PreparedJob, files: FileTree) -> None:
    """Refuse a job whose tasks a local master cannot run at the same time. On a cluster, Spark checks it."""
    job, spark = prepared.job, prepared.spark
    slots = local_slots(spark.sparkContext.master)
    partitions = _recorded_partitions(files) or int(spark.conf.get(PARTITIONS) or 0)
    needed = slots_needed(job, analyzed(prepared.frame), partitions)
    if slots is None or needed is None or slots >= needed:
        return
    raise JobRefused(
        "task-slots",
        f"{job.name} needs {needed} task slots at the same time, and {spark.sparkContext.master} has {slots}",
        evidence={"why": "the tasks of all stages run until the batch ends: one for each partition of topic and state"},
        remedy=f"--master 'local[{needed}]' (it may have more slots than cores), or omit --master",
    )


def slots_needed(job: Job, plan: Plan, shuffle_partitions: int) -> int | None:
    """Return the number of tasks that run at the same time; None if the topics of the job cannot be counted."""
    read = _source_partitions(job)
    return None if read is None else read + sum(_shuffled(node, shuffle_partitions) for node in plan.nodes())


def _shuffled(node: Plan, shuffle_partitions: int) -> int:
    if not node.is_streaming:
        return 0
    if node.name in REPARTITIONS:
        return node.repartitions
    if node.name not in STATEFUL:
        return 0
    return 1 if node.name == "Aggregate" and node.is_global else shuffle_partitions


def _source_partitions(job: Job) -> int | None:
    try:
        return sum(len(_partitions_of(source)) for source in job.sources.values() if isinstance(source, Kafka))
    except UnmappedOption:
        return None


def _partitions_of(source: Kafka) -> list[Partition]:
    if "assign" in source.options:
        assigned = json.loads(source.options["assign"])
        return [Partition(topic, number) for topic, numbers in assigned.items() for number in numbers]
    connection = Connection(source.servers, source.options)
    pattern = source.options.get("subscribePattern")
    chosen = re.compile(pattern).fullmatch if pattern else topic_names(source).__contains__
    return [place for place in list_partitions(connection) if chosen(place.topic)]


def local_slots(master: str) -> int | None:
    """Return the number of tasks that a local master runs at the same time; None for a cluster."""
    if master == "local":
        return 1
    found = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1])


def session_for(runs: Sequence[Run], master: str, conf: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the master and the settings for a new session: enough slots for all real-time jobs, and for other work.

    A master that the user has chosen stays.
    """
    chosen = [run for run in runs if is_real_time(run.job)]
    if not chosen or master != DEFAULT_MASTER or "spark.master" in conf or conf_of_spark_submit():
        return master, dict(conf)
    slots = sum(_slots_before_planning(run, conf) for run in chosen)
    return f"local[{slots + (os.cpu_count() or 1)}]", {SLOT_CHECK: "false", **conf}


def _slots_before_planning(run: Run, conf: Mapping[str, str]) -> int:
    partitions = int(conf.get(PARTITIONS) or default_conf(DEFAULT_MASTER)[PARTITIONS])
    if "://" not in run.checkpoint:
        partitions = _recorded_partitions(LocalTree(Path(run.checkpoint))) or partitions
    return (_source_partitions(run.job) or 0) + EXPECTED_SHUFFLES * partitions


def _recorded_partitions(files: FileTree) -> int | None:
    """Return the number of shuffle partitions with which a checkpoint started, which Spark keeps."""
    offsets = CheckpointLogs(files).offsets
    try:
        last = offsets.get(offsets.ids[-1]) if offsets.ids else None
    except CheckpointUnreadable:  # reported when the job starts
        return None
    return last.shuffle_partitions if last else None
