"""Polling a checkpoint for changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from corpus_support import CorpusCheckpoint, load
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.locate import open_checkpoint
from headwater.checkpoint.progress_files import ProgressWriter
from headwater.checkpoint.record import ProgressRecord, SourceProgress
from headwater.timemachine.journal import read_entries
from headwater.timemachine.rewind import plan_rewind
from headwater.views.page_points import MAX_POINTS
from headwater.web import watch
from headwater.web.watch import WatchedCheckpoint
from s3_support import BUCKET, S3
from two_sources import T0, TwoSources
from web.serving import figure, opened, served

Corpus = Callable[[str], CorpusCheckpoint]


def watched(path: Path) -> WatchedCheckpoint:
    found = WatchedCheckpoint("name", lambda: open_checkpoint(str(path)))
    found.poll()
    return found


def add_batch(path: Path, number: int, *, commit: bool = True) -> None:
    about = {"batchWatermarkMs": 1_000 * number, "batchTimestampMs": 60_000 + 1_000 * number, "conf": {}}
    offsets = {"visits": {"0": 10 * number}}
    (path / "offsets").mkdir(parents=True, exist_ok=True)
    (path / "commits").mkdir(exist_ok=True)
    (path / "offsets" / str(number)).write_text(f"v1\n{json.dumps(about)}\n{json.dumps(offsets)}")
    if commit:
        (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_new_batch_is_seen(tmp_path: Path) -> None:
    """A poll finds a batch when it is planned and when it is committed; without news the snapshot stays the same."""
    add_batch(tmp_path, 0)
    found = watched(tmp_path)
    assert [batch.status for batch in found.snapshot.batches] == ["committed"]
    version = found.snapshot.version
    found.poll()
    assert found.snapshot.version == version
    add_batch(tmp_path, 1, commit=False)
    found.poll()
    assert [batch.status for batch in found.snapshot.batches] == ["committed", "planned"]
    add_batch(tmp_path, 1)
    found.poll()
    assert [batch.status for batch in found.snapshot.batches] == ["committed", "committed"]
    assert found.snapshot.batches[1].rows == 10


def test_progress_is_seen_without_a_new_batch(tmp_path: Path) -> None:
    """A progress report, which Spark makes after the commit, is shown without a new batch."""
    add_batch(tmp_path, 0)
    found = watched(tmp_path)
    ProgressWriter(LocalTree(tmp_path)).add(ProgressRecord(batch_id=0, at_ms=60_000, dropped=3))
    ProgressWriter(LocalTree(tmp_path)).add(ProgressRecord(batch_id=9, at_ms=60_000, dropped=3))
    found.poll()
    assert list(found.snapshot.progress) == [0]
    assert found.snapshot.progress[0].dropped == 3


def test_late_report_completes_a_batch(tmp_path: Path) -> None:
    """Rows and lag that only the progress report shows are added to a batch that was already committed."""
    made = TwoSources("files /in/ads", "files /in/clicks").batch(2, 3, watermark=None)
    made.write(tmp_path)
    found = watched(tmp_path)
    assert found.snapshot.batches[0].rows is None
    sources = (SourceProgress("0", records=20), SourceProgress("1", records=30))
    ProgressWriter(LocalTree(tmp_path)).add(ProgressRecord(0, T0, duration_ms=10, sources=sources))
    found.poll()
    assert found.snapshot.batches[0].rows == 50


def test_held_back_watermark_is_seen(tmp_path: Path) -> None:
    """The page gets the source that holds the watermark back, and loses it when the watermark moves."""
    made = TwoSources().batch(1, 1, watermark=None, after=1).batch(1, 0, watermark=1).batch(1, 0, watermark=1)
    made.write(tmp_path)
    found = watched(tmp_path)
    assert found.snapshot.hold is not None and found.snapshot.hold.held_by[0].source == "1"
    made.batch(0, 1, watermark=1, after=2).write(tmp_path)
    found.poll()
    assert found.snapshot.hold is None


def test_the_journal_is_read_again_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New batches don't cause another read of the journal, whose entries have a line for every file that was moved."""
    path = load("aggregation-changelog", tmp_path).path
    plan_rewind(LocalTree(path), to=5).apply(allow_missing_input=True)
    found = watched(path)
    assert [entry.change.verb for entry in found.snapshot.journal] == ["rewind"]
    reads = []
    monkeypatch.setattr(watch, "read_entries", lambda files: reads.append(1) or read_entries(files))
    ProgressWriter(LocalTree(path)).add(ProgressRecord(batch_id=5, at_ms=60_000, dropped=3))
    found.poll()
    assert (found.snapshot.progress[5].dropped, reads) == (3, [])
    plan_rewind(LocalTree(path), to=4).apply(allow_missing_input=True)
    found.poll()
    assert (len(found.snapshot.journal), reads) == (2, [1])


def test_checkpoint_that_is_created_later(tmp_path: Path) -> None:
    """A missing checkpoint is shown as a problem until it exists."""
    found = watched(tmp_path / "later")
    assert found.snapshot.problem is not None and found.snapshot.problem.code == "no-checkpoint"
    add_batch(tmp_path / "later", 0)
    found.poll()
    assert found.snapshot.problem is None
    assert len(found.snapshot.batches) == 1


@pytest.mark.parametrize("name", ["aggregation-changelog", "aggregation-hdfs"])
def test_batch_whose_state_was_pruned(tmp_path: Path, name: str) -> None:
    """A batch whose state was removed since can no longer be rewound to."""
    path = load(name, tmp_path).path
    found = watched(path)
    reachable = [batch.batch_id for batch in found.snapshot.batches if batch.can_rewind_to]
    assert len(reachable) > 2
    gone = reachable[0] + 1
    for file in (path / "state").rglob(f"{gone}.*"):
        file.unlink()
    (path / "commits" / "news").write_text("")
    found.poll()
    assert reachable[0] not in [batch.batch_id for batch in found.snapshot.batches if batch.can_rewind_to]


def test_rewind_is_seen(tmp_path: Path) -> None:
    """A rewind is seen in the batches and in the journal."""
    path = load("aggregation-changelog", tmp_path).path
    found = watched(path)
    to = [batch.batch_id for batch in found.snapshot.batches if batch.can_rewind_to][-3]
    plan_rewind(LocalTree(path), to=to).apply(allow_missing_input=True)
    found.poll()
    assert found.snapshot.committed[-1] == to
    assert [entry.change.verb for entry in found.snapshot.journal] == ["rewind"]


def test_sources_on_the_page(tmp_path: Path, browser: Browser) -> None:
    """The page names the source that holds the watermark back, and shows what each source read."""
    made = TwoSources().with_job(ads="kafka://127.0.0.1:1/shown", clicks="kafka://127.0.0.1:1/clicked")
    reached = {("0", "at"): 9, ("1", "then"): 2}
    made.batch(1, 1, watermark=None, after=1, lags=(4, 0), reached=reached)
    made.batch(1, 0, watermark=1, lags=(7, 0), reached=reached).batch(1, 0, watermark=1, lags=(9, 0), reached=reached)
    made.write(tmp_path)
    with served(tmp_path, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        expect(page.get_by_text("because clicks has been idle since batch 1")).to_be_visible()
        expect(page.get_by_text("ads 0:2→3; clicks -")).to_be_visible()


@pytest.mark.parametrize("batches", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_batches_and_a_switch(tmp_path: Path, corpus: Corpus, browser: Browser, batches: int) -> None:
    """A long history is drawn in few points, fits a narrow screen, and another checkpoint can be selected."""
    many = tmp_path / "many"
    for number in range(batches):
        add_batch(many, number)
    first_point = -(-batches // MAX_POINTS) - 1
    few = corpus("aggregation-changelog").path
    with served(many, few, "--port", 0) as page_of, opened(browser, page_of.url, width=390, dark=True) as page:
        expect(figure(page, "Last batch")).to_have_text(str(batches - 1))
        page.get_by_role("button", name="all").click()
        expect(page.locator(".hw-timeline svg").get_by_text(f"0\u2013{first_point}", exact=True)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("combobox", name="checkpoint").click()
        page.get_by_role("option", name=few.name).click()
        newest = max(int(file.name) for file in (few / "offsets").iterdir() if file.name.isdigit())
        expect(figure(page, "Last batch")).to_have_text(str(newest))


@pytest.mark.slow
def test_a_checkpoint_on_an_object_store(browser: Browser, s3: S3, tmp_path: Path) -> None:
    """The page shows a checkpoint on S3, including batches that are added while it is open."""
    held = load("aggregation-hdfs", tmp_path)
    url = s3.upload(held.path, "watched")
    rows = len([row for asked in held.answers if asked.batch_id == 9 for row in asked.text])
    with served(url, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        expect(figure(page, "Last batch")).to_have_text("9")
        expect(page.get_by_text(f"{rows} rows", exact=False).first).to_be_visible()
        offsets = (held.path / "offsets" / "9").read_bytes()
        s3.client.put_object(Bucket=BUCKET, Key="watched/offsets/10", Body=offsets)
        s3.client.put_object(Bucket=BUCKET, Key="watched/commits/10", Body=(held.path / "commits" / "9").read_bytes())
        expect(figure(page, "Last batch")).to_have_text("10")
