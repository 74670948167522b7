"""Records that a job dropped, late or malformed: found again by their offsets, and kept as dead letters while it runs."""

from headwater.spark.dropped.dead_letters import following
from headwater.spark.dropped.lateness import TAG, find_rule, late_records
from headwater.spark.dropped.records import DroppedRecords
from headwater.spark.dropped.store import DeadLetterSink, DeadLetterStore, dead_letter_sink, query_id_of, refuse_circle

__all__ = [
    "TAG",
    "DeadLetterSink",
    "DeadLetterStore",
    "DroppedRecords",
    "dead_letter_sink",
    "find_rule",
    "following",
    "late_records",
    "query_id_of",
    "refuse_circle",
]
