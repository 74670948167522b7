"""Checks of a checkpoint and its sink against what the oracle computes from the records."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from soak.environment import FULL_RETENTION, StoryEnvironment, Stream
from soak.lineage import Lineage, places
from soak.oracle import Bag, ExpectedBatch
from soak.processes import CommandResult, run_in_process
from soak.services import PASSWORD
from soak.sinks import read_delta_rows, read_iceberg_rows, table_rows_after

STACK_TRACE = ("Traceback", "at org.apache", "at java.", "SQLSTATE")


class CheckFailed(AssertionError):
    """The checkpoint, the sink or a command's answer differs from what is expected."""


def require(condition: bool, *message: object) -> None:
    if not condition:
        raise CheckFailed(" ".join(map(str, message)))


def require_clear_error(result: CommandResult) -> None:
    """Check that a failed command printed an error code and no stack trace."""
    require(result.code is not None and not any(mark in result.err for mark in STACK_TRACE), result.err)


def check_after_action(env: StoryEnvironment, stream: Stream) -> None:
    """Check what must hold after any action: a consistent checkpoint, and the oracle's watermarks."""
    check_fsck(stream)
    lineage = env.read_lineage(stream)
    expected = env.expected_batches(lineage)
    for batch, wanted in zip(lineage.batches, expected, strict=True):
        require(
            batch.watermark_ms == wanted.watermark_ms,
            f"batch {batch.batch_id} has watermark {batch.watermark_ms}, expected {wanted.watermark_ms}",
        )
    check_rewound_sink(env, stream, lineage, expected)


def check_rewound_sink(env: StoryEnvironment, stream: Stream, lineage: Lineage, expected: list[ExpectedBatch]) -> None:
    """Check a sink that is rewound with the checkpoint, so that it always has the rows of the batches that are left."""
    if env.cell.sink == "files":
        _check_folder(env, stream, lineage, expected)
    elif env.cell.sink_is_rewound:
        _check_table(env, stream, lineage, expected)


def record_run(env: StoryEnvironment, stream: Stream) -> int:
    """Check that a run kept the batches before it, record what its batches wrote, and return how many it committed."""
    before, now = stream.lineage, env.read_lineage(stream)
    kept = [batch.identity for batch in before.committed]
    require([batch.identity for batch in now.batches][: len(kept)] == kept, "a run changed committed batches")
    planned = before.planned
    if planned is not None and len(now.batches) > planned.batch_id:
        require(
            now.batches[planned.batch_id].identity == planned.identity,
            f"planned batch {planned.batch_id} ran with different offsets",
        )
    committed = 0
    for expected, batch in zip(env.expected_batches(now), now.batches, strict=True):
        if batch.batch_id <= before.head:
            continue
        if batch.committed:
            stream.writes.record_committed(expected)
            committed += 1
        else:
            stream.writes.record_possible(expected)
    stream.lineage = now
    return committed


def check_fsck(stream: Stream) -> None:
    result = run_in_process("fsck", stream.checkpoint, "--json")
    if result.code in {"no-checkpoint", "not-a-checkpoint"} and not (stream.checkpoint / "offsets").exists():
        return
    found = [json.loads(line) for line in result.out.splitlines()]
    errors = [finding for finding in found if finding["severity"] == "error"]
    # A kill can leave a batch that Spark cannot finish; the next run has to refuse it with the same code.
    unexpected = [finding for finding in errors if finding["code"] != "batch-stuck"]
    require(not unexpected and result.status == (1 if errors else 0), "fsck:", *unexpected, result.err)


def check_drained(env: StoryEnvironment, stream: Stream) -> None:
    """Check a run to the end of the input: every record read exactly once, sink and state as expected."""
    lineage = env.read_lineage(stream)
    require(lineage.planned is None, "the run ended with an uncommitted batch:", lineage.planned)
    read = env.places_read(lineage)
    lost = [place for place in env.records if place not in read]
    twice = [place for place, times in read.items() if times > 1 or place not in env.records]
    require(not lost, f"{len(lost)} records were never read:", lost[:5])
    require(not twice, f"{len(twice)} records were read twice or never sent:", twice[:5])
    expected = env.expected_batches(lineage)
    check_state(env, stream, lineage.head, expected[-1].state)
    if env.cell.sink_is_rewound:
        check_rewound_sink(env, stream, lineage, expected)
    else:
        wrong = stream.writes.differences(env.rows_in_sink(stream))
        require(not wrong, f"{env.cell.sink}: {len(wrong)} wrong keys:", *wrong[:5])


def check_no_secret(env: StoryEnvironment) -> None:
    """Check that the password of the sink's URI is in none of the story's files and not in Spark's log."""
    files = [file for file in env.folder.rglob("*") if file.is_file()]
    for file in [*files, *env.services.folder.glob("spark-*.log")]:
        require(PASSWORD.encode() not in file.read_bytes(), f"the password is in {file}")


def check_state(env: StoryEnvironment, stream: Stream, batch: int, expected: Bag) -> None:
    from headwater.checkpoint.local_tree import LocalTree
    from headwater.core.ids import StoreRef
    from headwater.statefiles.reader import state_rows

    rows = state_rows(LocalTree(stream.checkpoint), batch, StoreRef(var=env.job.var))
    compare_state(env, rows, batch, expected)


def compare_state(env: StoryEnvironment, rows: list[dict[str, Any]], batch: int, expected: Bag) -> None:
    found = Counter(env.job.state_row(row) for row in rows)
    _require_same(found, expected, f"state of batch {batch}")


def _require_same(found: Counter[Any], wanted: Counter[Any], subject: str) -> None:
    missing, extra = list((wanted - found).elements()), list((found - wanted).elements())
    require(found == wanted, f"{subject}: missing {missing[:4]}, unexpected {extra[:4]}")


def check_states(env: StoryEnvironment, stream: Stream) -> int:
    """Check the state at every batch that can be rewound to, and return the number of batches."""
    result = run_in_process("log", stream.checkpoint, "--json")
    require(result.status == 0, result.err)
    batches = [json.loads(line) for line in result.out.splitlines()]
    expected = {batch.batch_id: batch for batch in env.expected_batches(env.read_lineage(stream))}
    reachable = [batch["batch_id"] for batch in batches if batch["can_rewind_to"]]
    if env.story.retained_batches >= FULL_RETENTION:
        lost = {batch_id for batch_id, *_ in stream.without_state.intersection(env.read_lineage(stream).identities())}
        kept = {batch["batch_id"] for batch in batches if batch["status"] == "committed"}
        require(kept - lost <= {*reachable} <= kept, f"batches {kept} are committed, {reachable} can be rewound to")
    for number in reachable:
        check_state(env, stream, number, expected[number].state)
    return len(reachable)


def check_diff(env: StoryEnvironment, stream: Stream, a: int, b: int) -> None:
    """Check that ``headwater diff`` shows the difference of the oracle's two states."""
    var = ["--var", env.job.var] if env.job.var else []
    result = run_in_process("diff", stream.checkpoint, a, b, "--json", *var)
    require(result.status == 0, "diff:", result.err)
    expected = env.expected_batches(env.read_lineage(stream))
    before, after = expected[a].state, expected[b].state
    removed: Bag = Counter()
    added: Bag = Counter()
    for line in result.out.splitlines():
        row = parse_row(line)
        require(row["before"] != row["after"], f"diff {a} {b} shows an unchanged row:", line)
        if row["before"] is not None:
            removed[env.job.state_row({**row, "value": row["before"]})] += 1
        if row["after"] is not None:
            added[env.job.state_row({**row, "value": row["after"]})] += 1
    # Spark moves the rows of a join's key to other indexes when it removes one, so a row may be in both.
    _require_same(removed - added, before - after, f"diff {a} {b}, rows before")
    _require_same(added - removed, after - before, f"diff {a} {b}, rows after")


def parse_row(line: str) -> dict[str, Any]:
    """Parse a row of state; two aggregates may have the same name, and both values are kept."""
    from headwater.statefiles.sqltypes import distinct

    def keep_all(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = distinct([name for name, _ in pairs])
        return dict(zip(names, (value for _, value in pairs), strict=True))

    parsed: dict[str, Any] = json.loads(line, object_pairs_hook=keep_all)
    return parsed


def check_late(env: StoryEnvironment, stream: Stream, printed: str) -> None:
    """Check that ``headwater late`` lists exactly the late and malformed records of the batches in the log."""
    rows = [json.loads(line) for line in printed.splitlines()]
    for row in rows:
        source = env.records[_place(row)].source
        require((row["source"] or "") == source, f"late: a record of {source or 'the source'} is shown as", row)
    found = {(row["batch_id"], row["reason"], _place(row)) for row in rows}
    require(len(found) == len(rows), "late: a record is listed twice:", printed)
    lineage = env.read_lineage(stream)
    on_disk = {int(file.name) for file in (stream.checkpoint / "commits").iterdir() if file.name.isdigit()}
    wanted = set()
    for expected, read in zip(env.expected_batches(lineage), _places_by_batch(env, lineage), strict=True):
        if expected.batch_id in on_disk:
            wanted |= {(expected.batch_id, "late", place) for place in expected.late}
            malformed = [place for place in read if env.records[place].fields is None]
            wanted |= {(expected.batch_id, "malformed", place) for place in malformed}
    first = min(on_disk, default=0)
    if first > 0:  # the start offsets and the watermark of the oldest batch are in an entry that Spark has purged
        found, wanted = ({row for row in rows if row[0] > first} for rows in (found, wanted))
    require(found == wanted, f"late: unexpected {sorted(found - wanted)[:4]}, missing {sorted(wanted - found)[:4]}")


def _places_by_batch(env: StoryEnvironment, lineage: Lineage) -> list[list[Any]]:
    return [places(batch, before, env.line_counts) for batch, before in lineage.ranges()]


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    if row["kind"] == "kafka":
        return row["topic"], row["partition"], row["offset"]
    return row["path"].rpartition("/")[2], row["line"]


def _check_folder(env: StoryEnvironment, stream: Stream, lineage: Lineage, expected: list[ExpectedBatch]) -> None:
    """Check that the rows of every committed batch are there once; those of a planned batch may be there already."""
    found = env.rows_in_folder(stream)
    emitted = [batch.emitted for batch in expected if batch.batch_id >= stream.starts_at]
    count = max(0, len(lineage.committed) - stream.starts_at)
    wanted: Counter[Any] = sum(emitted[:count], Counter())
    allowed = [wanted] if lineage.planned is None else [wanted, wanted + emitted[-1]]
    missing, extra = list((wanted - found).elements()), list((found - allowed[-1]).elements())
    require(found in allowed, f"files: {len(missing)} rows missing {missing[:4]}, {len(extra)} unexpected {extra[:4]}")


def _check_table(env: StoryEnvironment, stream: Stream, lineage: Lineage, expected: list[ExpectedBatch]) -> None:
    """Check the same of a table. A fork has a copy of the table, with the rows of the batches before it."""
    found = (read_delta_rows if env.cell.sink == "delta" else read_iceberg_rows)(env.job, stream.sink)
    done = len(lineage.committed)
    allowed = [table_rows_after(env.job, expected[:count]) for count in range(done, len(expected) + 1)]
    missing, extra = list((allowed[0] - found).elements()), list((found - allowed[-1]).elements())
    require(
        found in allowed,
        f"{env.cell.sink}: {len(missing)} rows missing {missing[:4]}, {len(extra)} unexpected {extra[:4]}",
    )
