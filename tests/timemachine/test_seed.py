"""Seeded checkpoints, without Spark."""

from __future__ import annotations

import contextlib
import json

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.core.errors import ChangeRefused, CheckpointUnreadable
from headwater.statefiles.reader import state_rows
from headwater.timemachine.replay_scratch import recorded_batches
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.seed import (
    UNFINISHED,
    Progress,
    SeededSource,
    SeedPlan,
    adopt,
    read_progress,
    refuse_existing,
    refuse_other_seed,
    rewrite_positions,
    seed_record,
    set_watermark,
)
from headwater.timemachine.seed_record import SEED_FILE
from headwater.views.plans import seed_text
from timemachine.crashing import Crashed, CrashingDisk, CrashingObjectStore, CrashSchedule

POSITION = '{"visits":{"0":500}}'
SOURCE = SeededSource("", "kafka://h:1/visits", "files:old", POSITION, "visits 0:500", "by offset: …", 3, 2048)
PLAN = SeedPlan("totals", "/c", (SOURCE,), "offset", "aside", "console:", "/c.output", "a reason", ("careful",), "all")


def seeded(name: str = "aggregation-changelog") -> MemoryTree:
    """Return a checkpoint of a file source that continues on a topic."""
    scratch, into = as_memory_files(name), MemoryTree()
    rewrite_positions(scratch, [POSITION])
    adopt(scratch, into, {SEED_FILE: seed_record(PLAN, batches=[0], rows=5, by="me", at="now")})
    return into


def test_every_batch_gets_the_position() -> None:
    """The offsets of all batches are those of the topic; watermarks, settings and state stay, checksums go."""
    before, after = as_memory_files("aggregation-changelog"), seeded()
    old, new = History(before), History(after)
    assert new.batch_ids == old.batch_ids
    for number in new.batch_ids:
        entry, was = new.logs.offsets.read(number), old.logs.offsets.read(number)
        assert [source.text for source in entry.sources] == [POSITION]
        assert (entry.watermark_ms, entry.conf) == (was.watermark_ms, was.conf)
        assert f"offsets/.{number}.crc" not in after.contents
    assert not any(path.startswith("sources/") for path in after.contents)
    assert state_rows(after) == state_rows(before)
    assert after.read("metadata") == before.read("metadata")
    assert new.batch(new.batch_ids[-1]).sources[0].kind == "kafka"


def test_sources_with_names_keep_them() -> None:
    """In the offset log of version 2, each line begins with the name of its source."""
    files = as_memory_files("named")
    names = [source.name for source in History(files).logs.offsets.read(0).sources]
    rewrite_positions(files, [POSITION, None][: len(names)])
    entry = History(files).logs.offsets.read(0)
    assert [source.name for source in entry.sources] == names
    assert [source.text for source in entry.sources] == [POSITION, None][: len(names)]


def test_rewriting_twice_changes_nothing() -> None:
    """A seed can be interrupted while it rewrites the offsets. Another number of sources is an error."""
    files = as_memory_files("aggregation-changelog")
    rewrite_positions(files, [POSITION])
    once = dict(files.contents)
    rewrite_positions(files, [POSITION])
    assert files.contents == once
    with pytest.raises(CheckpointUnreadable, match="a different number of sources"):
        rewrite_positions(files, [POSITION, POSITION])


def test_custom_state_refers_to_its_new_place() -> None:
    """Metadata of custom state has absolute paths of schema files, which move with the checkpoint."""
    into = seeded("custom-changelog")
    assert state_rows(into) == state_rows(as_memory_files("custom-changelog"))


def test_an_incomplete_checkpoint_is_replaced() -> None:
    """A part of a seed may be overwritten; anything else may not."""
    into = MemoryTree({"metadata": UNFINISHED, "offsets/0": b"half"})
    refuse_existing(into)
    adopt(as_memory_files("aggregation-changelog"), into, {})
    assert into.read("offsets/0") != b"half"
    with pytest.raises(ChangeRefused, match="this one exists"):
        refuse_existing(into)
    refuse_existing(MemoryTree())


@pytest.mark.parametrize("medium", [CrashingDisk, CrashingObjectStore])
@pytest.mark.parametrize("name", ["aggregation-hdfs", pytest.param("custom-format2", marks=pytest.mark.slow)])
def test_a_checkpoint_is_adopted_completely_or_once_more(name: str, medium: type[CrashingDisk]) -> None:
    """At each point nothing starts on the checkpoint, and the same seed completes it, or it is complete already."""
    scratch = as_memory_files(name)
    written = {SEED_FILE: b"{}"}
    whole = medium({}, CrashSchedule())
    adopt(scratch, whole, written)
    points = complete = 0
    for number in range(whole.schedule.passed):
        first = medium({}, CrashSchedule(number))
        with contextlib.suppress(Crashed):
            adopt(scratch, first, written)
        for again in (number // 3, None):  # the second attempt may be killed as well
            into = medium(dict(first.contents), CrashSchedule(again))
            with contextlib.suppress(Crashed, ChangeRefused):
                adopt(scratch, into, written)
            points += 1
            started = into.contents.get("metadata", UNFINISHED) != UNFINISHED
            complete += started
            assert not started or into.contents == whole.contents, (number, again)
        assert started, number
    print(f"seed of {name} on {medium.__name__.lower()}: {points} points")
    assert complete < points


def test_an_interrupted_seed_is_recognized_by_its_options() -> None:
    """What was resolved then is used again, and other options are refused."""
    scratch = MemoryTree()
    assert read_progress(scratch) is None
    made = Progress("positions", "all", {"": POSITION}, 7)
    scratch.write("_headwater/seeding.json", made.to_bytes())
    assert read_progress(scratch) == made
    refuse_other_seed(made, PLAN)
    with pytest.raises(ChangeRefused, match="it had other options"):
        refuse_other_seed(Progress("history", "other", {}), PLAN)


def test_history_cannot_be_read_again() -> None:
    """Batch 0 read history, so it is neither rewound nor replayed; later batches are."""
    files = seeded()
    with pytest.raises(ChangeRefused) as refused:
        plan_rewind(files, to=None)
    assert refused.value.code == "seeded"
    with pytest.raises(ChangeRefused):
        recorded_batches(files, 0, 1)
    assert recorded_batches(files, 1, 2) == [1, 2]
    assert plan_rewind(files, to=4).next_batch == 5


def test_a_watermark_can_be_set() -> None:
    """The next batch starts with it."""
    files = as_memory_files("aggregation-changelog")
    set_watermark(files, 1234)
    logs = History(files).logs
    last = logs.commits.ids[-1]
    assert (logs.commits.read(last).next_watermark_ms, logs.offsets.read(last).watermark_ms) == (1234, 1234)
    assert state_rows(files)


def test_the_plan_states_everything() -> None:
    """History, position, rule, output, reason and warnings, as text and as JSON."""
    assert seed_text(PLAN).lines() == [
        "Seed /c for totals",
        "  history     files:old, 3 files, 2.0 kB",
        "  continues   kafka://h:1/visits at visits 0:500",
        "  in both     by offset: …",
        "  output      of the history is kept in /c.output, not written to console:",
        "  reason      a reason",
        "warning: careful",
    ]
    shown = json.loads(json.dumps(PLAN.as_dict()))
    assert (shown["verb"], shown["distinguished_by"], shown["output"]) == ("seed", "offset", "aside")
    assert shown["sources"][0]["position"] == {"visits": {"0": 500}}


def test_a_resumed_seed_keeps_the_positions_that_it_resolved() -> None:
    """The topic may have grown since: the history and the record have the positions at which the sources continue."""
    source = SeededSource("visits", "kafka://h/visits", "files:/archive", '{"visits":{"0":1500}}', "0:1500", "offset")
    plan = SeedPlan("j", "/ckpt", (source,), "offset", "drop", "console:")
    resumed = plan.with_offsets({"visits": '{"visits":{"0":1000}}'})
    record = json.loads(seed_record(resumed, batches=[0], rows=0, by="me", at="now"))
    assert record["sources"][0]["position"] == {"visits": {"0": 1000}}
