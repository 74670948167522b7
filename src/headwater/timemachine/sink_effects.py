"""What a sink sees when batches run a second time. Pure: the sink's URI in, sentences out."""

from __future__ import annotations

from collections.abc import Sequence


def sink_effects(sink: str | None, *, has_log: bool, undone: Sequence[int]) -> tuple[str, list[str]]:
    """One sentence on the sink, and warnings. ``has_log``: it is a file sink, and its log goes back with the rest."""
    span = f"batch {undone[0]}" if len(undone) == 1 else f"batches {undone[0]} to {undone[-1]}"
    if has_log:
        return f"its log and the files of {span} are set aside: every row is there once after the second run", []
    kind = (sink or "").partition(":")[0]
    match kind:
        case "kafka":
            again = f"the rows of {span} are sent a second time: consumers see duplicates"
            return again, [again]
        case "console":
            return f"{span} will be printed again", []
        case "memory":
            return "the table is filled anew: it lives in the process of the job", []
        case "postgresql":
            return f"the rows of {span} are upserted again, over those of the first run", []
        case "files" | "table":
            again = (
                f"{sink} has no log of Spark's file sink: the rows of {span} stay there and are written a second time"
            )
            return again, [again]
        case "delta" | "hudi":
            skipped = (
                f"the table has seen the numbers of {span} and skips them silently when they run again; restoring the "
                "table does not change that. Go on under a new query id instead: headwater fork"
            )
            return skipped, [skipped]
        case _:
            warning = (
                f"the sink is not known: a file sink (and Delta) skips {span} silently when they run again, because it "
                "has seen their numbers. If it is a file sink, name it: --sink files:DIR"
            )
            return "not known to Headwater", [warning]
