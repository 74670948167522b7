"""Whether a checkpoint and its sink are what the records say they should be."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from soak.lineage import Lineage
from soak.oracle import BatchResult, Rows
from soak.processes import in_process
from soak.services import PASSWORD
from soak.stage import Stage, Stream


class Wrong(AssertionError):
    """Something is not as it should be."""


def demand(holds: bool, *said: object) -> None:
    if not holds:
        raise Wrong(" ".join(map(str, said)))


def check_after_action(stage: Stage, stream: Stream) -> None:
    """What holds at any time, whatever was killed: a sound checkpoint, and our watermarks."""
    check_fsck(stream)
    lineage = stage.read_lineage(stream)
    results = stage.results(lineage)
    for batch, result in zip(lineage.batches, results, strict=True):
        demand(
            batch.watermark_ms == result.watermark_ms,
            f"batch {batch.batch_id} has watermark {batch.watermark_ms}, the records give {result.watermark_ms}",
        )
    if stage.cell.sink == "files":
        _check_folder(stage, stream, lineage, results)


def check_fsck(stream: Stream) -> None:
    told = in_process("fsck", stream.checkpoint, "--json")
    if told.code in {"no-checkpoint", "not-a-checkpoint"} and not (stream.checkpoint / "offsets").exists():
        return
    found = [json.loads(line) for line in told.out.splitlines()]
    errors = [finding for finding in found if finding["severity"] == "error"]
    # A kill may leave a batch that Spark cannot finish; the next run has to say so.
    worse = [finding for finding in errors if finding["code"] != "batch-stuck"]
    demand(not worse and told.status == (1 if errors else 0), "fsck:", *worse, told.err)


def check_drained(stage: Stage, stream: Stream) -> None:
    """After a run to the end: every record read once, the sink and the state as the records say."""
    lineage = stage.read_lineage(stream)
    demand(lineage.planned is None, "the run ended and left a batch planned:", lineage.planned)
    read = stage.places_read(lineage)
    lost = [place for place in stage.records if place not in read]
    twice = [place for place, times in read.items() if times > 1 or place not in stage.records]
    demand(not lost, f"{len(lost)} records were never read:", lost[:5])
    demand(not twice, f"{len(twice)} records were read twice or never sent:", twice[:5])
    results = stage.results(lineage)
    check_state(stage, stream, lineage.head, results[-1].state)
    if stage.cell.sink == "files":
        _check_folder(stage, stream, lineage, results)
    else:
        wrong = stream.writes.differences(stage.rows_in_sink(stream))
        demand(not wrong, f"{stage.cell.sink}: {len(wrong)} wrong keys:", *wrong[:5])


def check_no_secret(stage: Stage) -> None:
    """The password of the sink's URI is in no file that the story left behind, nor in Spark's log."""
    files = [file for file in stage.folder.rglob("*") if file.is_file()]
    for file in [*files, stage.services.folder / "spark.log"]:
        demand(not file.exists() or PASSWORD.encode() not in file.read_bytes(), f"a password is written down in {file}")


def check_state(stage: Stage, stream: Stream, batch: int, expected: Rows) -> None:
    from headwater.checkpoint.local_files import LocalFiles
    from headwater.statefiles.single_reads import state_rows

    rows = state_rows(LocalFiles(stream.checkpoint), batch, var=stage.job.var)
    compare_state(stage, rows, batch, expected)


def compare_state(stage: Stage, rows: list[dict[str, Any]], batch: int, expected: Rows) -> None:
    found = Counter(stage.job.state_row(row) for row in rows)
    wanted = Counter(expected.items())
    missing, extra = list((wanted - found).elements()), list((found - wanted).elements())
    demand(found == wanted, f"state of batch {batch}: missing {missing[:4]}, not expected {extra[:4]}")


def check_states(stage: Stage, stream: Stream) -> int:
    """The state at every batch that can still be had; how many they were."""
    told = in_process("log", stream.checkpoint, "--json")
    demand(told.status == 0, told.err)
    batches = [json.loads(line) for line in told.out.splitlines()]
    results = {result.batch_id: result for result in stage.results(stage.read_lineage(stream))}
    reachable = [batch["batch_id"] for batch in batches if batch["can_rewind_to"]]
    if stage.story.retained_batches >= 100:
        kept = [batch["batch_id"] for batch in batches if batch["status"] == "committed"]
        demand(reachable == kept, f"committed batches {kept}, and one can rewind to {reachable}")
    for number in reachable:
        check_state(stage, stream, number, results[number].state)
    return len(reachable)


def check_diff(stage: Stage, stream: Stream, a: int, b: int) -> None:
    """``headwater diff`` says what the oracle's two states say."""
    var = ["--var", stage.job.var] if stage.job.var else []
    told = in_process("diff", stream.checkpoint, a, b, "--json", *var)
    demand(told.status == 0, "diff:", told.err)
    results = stage.results(stage.read_lineage(stream))
    before, after = Counter(results[a].state.items()), Counter(results[b].state.items())
    gone: Counter[Any] = Counter()
    came: Counter[Any] = Counter()
    for line in told.out.splitlines():
        row = json.loads(line)
        if row["before"] is not None:
            gone[stage.job.state_row({"key": row["key"], "value": row["before"]})] += 1
        if row["after"] is not None:
            came[stage.job.state_row({"key": row["key"], "value": row["after"]})] += 1
    demand(gone == before - after, f"diff {a} {b}: before {gone - (before - after)}, {(before - after) - gone}")
    demand(came == after - before, f"diff {a} {b}: after {came - (after - before)}, {(after - before) - came}")


def check_late(stage: Stage, stream: Stream, printed: str) -> None:
    """``headwater late`` names every late and every malformed record of the batches in the log, and no other."""
    found = {(row["batch_id"], row["reason"], _place(row)) for row in map(json.loads, printed.splitlines())}
    lineage = stage.read_lineage(stream)
    on_disk = {int(file.name) for file in (stream.checkpoint / "commits").iterdir() if file.name.isdigit()}
    wanted = set()
    for result, read in zip(stage.results(lineage), _places_by_batch(stage, lineage), strict=True):
        if result.batch_id in on_disk:
            wanted |= {(result.batch_id, "late", place) for place in result.late}
            bad = [place for place in read if stage.records[place].fields is None]
            wanted |= {(result.batch_id, "malformed", place) for place in bad}
    first = min(on_disk, default=0)
    if first > 0:  # what the oldest batch in the log read, and by which watermark, is told by one that is gone
        found, wanted = ({row for row in rows if row[0] > first} for rows in (found, wanted))
    demand(found == wanted, f"late: too many {sorted(found - wanted)[:4]}, missing {sorted(wanted - found)[:4]}")


def _places_by_batch(stage: Stage, lineage: Lineage) -> list[list[Any]]:
    from soak.lineage import places

    return [places(batch, before, stage.line_counts) for batch, before in lineage.ranges()]


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    if row["kind"] == "kafka":
        return row["topic"], row["partition"], row["offset"]
    return row["path"].rpartition("/")[2], row["line"]


def _check_folder(stage: Stage, stream: Stream, lineage: Lineage, results: list[BatchResult]) -> None:
    """Rows of every committed batch once; those of a planned one may be there already."""
    found = stage.rows_in_folder(stream)
    emitted = [Counter(result.emitted.items()) for result in results if result.batch_id >= stream.starts_at]
    count = max(0, len(lineage.committed) - stream.starts_at)
    wanted: Counter[Any] = sum(emitted[:count], Counter())
    allowed = [wanted] if lineage.planned is None else [wanted, wanted + emitted[-1]]
    missing, extra = list((wanted - found).elements()), list((found - allowed[-1]).elements())
    demand(found in allowed, f"files: {len(missing)} rows missing {missing[:4]}, {len(extra)} too many {extra[:4]}")
