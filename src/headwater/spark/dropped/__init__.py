"""Records that a job dropped as late or could not decode: found by their offsets, and saved as dead letters."""

from headwater.spark.dropped.dead_letters import collecting_dead_letters
from headwater.spark.dropped.lateness import TAG, find_rules, late_records
from headwater.spark.dropped.records import DroppedRecords
from headwater.spark.dropped.store import (
    DeadLetterSink,
    DeadLetterStore,
    dead_letter_sink,
    query_id_of,
    refuse_feedback_loop,
)

__all__ = [
    "TAG",
    "DeadLetterSink",
    "DeadLetterStore",
    "DroppedRecords",
    "collecting_dead_letters",
    "dead_letter_sink",
    "find_rules",
    "late_records",
    "query_id_of",
    "refuse_feedback_loop",
]
