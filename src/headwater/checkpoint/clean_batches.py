"""Batches of which the run itself wrote down that nothing was dropped in them: nobody has to read their records again."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.checkpoint.history import History
from headwater.checkpoint.progress_log import read_progress


def clean_batches(history: History, batch_ids: Iterable[int]) -> set[int]:
    """Those of the batches with a report, of this very run of theirs, that counts neither late nor malformed records.

    A batch number that was rewound and planned anew has an older report; it was over before the new plan was made.
    """
    reports = read_progress(history.files)
    found = set()
    for number in batch_ids:
        report, planned = reports.get(number), history.logs.offsets.get(number)
        if report is None or planned is None or not planned.timestamp_ms:
            continue
        if report.ran_at(planned.timestamp_ms) and not report.dropped and not report.malformed:
            found.add(number)
    return found
