"""The page during the run of a real job, and on the checkpoint of that job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from prometheus_client.parser import text_string_to_metric_families

from cli.commands import running
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.keep import make_point
from waiting_support import wait_until
from web.serving import Served, figure, go_to, opened, served, state_rows, summary

GOLDEN = Path(__file__).parents[1] / "golden" / "browser_stats_stateful.json"
Counts = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Story:
    """The checkpoint of the golden file's job, and what the page showed while it ran."""

    checkpoint: Path
    states: dict[int, Counts]
    """The count by browser and start of the window, for each batch."""
    seen_live: list[int]
    dropped_live: str
    status_live: str
    url_of_run: str
    metrics: str


def key_of(row: dict[str, Any]) -> tuple[str, str]:
    return row["browser"], row["window"]["start"].replace("T", " ").removesuffix(".000Z")


def golden_states() -> dict[int, Counts]:
    """Return the state after each batch: one batch per step, and a no-data batch when the watermark advances."""
    held: dict[tuple[str, str], tuple[str, str]] = {}
    found: dict[int, Counts] = {}
    for step in json.loads(GOLDEN.read_text())["steps"]:
        held |= {key_of(row): (str(row["count"]), row["window"]["end"]) for row in step["emits"]}
        found[len(found)] = {key: count for key, (count, _) in held.items()}
        if watermark := step.get("watermark_after"):
            held = {key: value for key, value in held.items() if value[1] > watermark}
            found[len(found)] = {key: count for key, (count, _) in held.items()}
    return found


def feed(folder: Path, number: int, lines: list[str]) -> None:
    """Add an input file atomically."""
    draft = folder / f".{number}"
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.rename(folder / f"{number}.json")


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Story]:
    """Run the real job on the golden input, with the page open since before the first batch."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "visits").mkdir()
    checkpoint, states = folder / "browser-stats", golden_states()
    source = f"files:{folder}/visits?format=json&maxFilesPerTrigger=1"
    command = ["run", "browser-stats-stateful", "--source", source, "--sink", "console:", "--ui", "--metrics", "0"]
    with served(checkpoint, "--port", 0, "--wait") as page_of, opened(browser, page_of.url) as page:
        expect(page.get_by_text("Waiting for a checkpoint")).to_be_visible()
        with running(folder, *command, "--checkpoint", str(checkpoint)) as job:
            url = job.wait_for("page: ").split()[1]
            metrics_url = job.wait_for("metrics: ").split()[1]
            seen, batch = [], -1
            for number, step in enumerate(json.loads(GOLDEN.read_text())["steps"]):
                feed(folder / "visits", number, step["send"])
                batch += 2 if "watermark_after" in step else 1
                expect(figure(page, "Last batch")).to_have_text(str(batch))
                expect(page.locator("[data-batch]")).to_have_attribute("data-batch", str(batch))
                seen.append(batch)
            expect(figure(page, "Dropped")).to_have_text("2")
            dropped = figure(page, "Dropped").inner_text()
            status = page.locator("[data-status]").inner_text()
            with opened(browser, url) as own:
                expect(figure(own, "Last batch")).to_have_text(str(batch))
            # The report of a batch follows its commit.
            last = f'headwater_last_batch_id{{job="browser-stats-stateful"}} {batch}.0'
            metrics = wait_until(lambda: scraped if last in (scraped := scrape(metrics_url)) else None, last)
            job.signal_group(signal.SIGTERM)
            assert job.end() == 0, job.errors
        expect(page.locator("[data-status]")).to_have_text("no query running")
    yield Story(checkpoint, states, seen, dropped, status, url, metrics)


@pytest.fixture
def copy(story: Story, tmp_path: Path) -> Path:
    """A copy of the checkpoint, to be changed."""
    return Path(shutil.copytree(story.checkpoint, tmp_path / "browser-stats"))


@pytest.fixture(scope="module")
def read_only(story: Story) -> Iterator[Served]:
    """One page for all tests that change nothing."""
    with served(story.checkpoint, "--port", 0) as page:
        yield page


def shown_counts(page: Page) -> Counts:
    return {(row[1], row[2]): row[4] for row in state_rows(page)}


def test_batches_appear_while_the_job_runs(story: Story) -> None:
    """Batches, the status of the job and its late records appear without a reload."""
    assert story.seen_live == [1, 3, 4, 5, 7, 8]
    assert story.dropped_live == "2"
    assert story.status_live.startswith("running, pid ")


def test_run_serves_its_own_page(story: Story) -> None:
    """`run --ui` prints a URL with a token, and its page shows the same batches."""
    assert "/?token=" in story.url_of_run


def test_run_serves_metrics(story: Story) -> None:
    """`run --metrics` counts the batches, rows and late records of the golden file."""
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(story.metrics)
        for sample in family.samples
        if sample.labels.get("job") == "browser-stats-stateful"
    }
    assert samples["headwater_batches_total"] == len(story.states)
    assert samples["headwater_input_rows_total"] == 9
    assert samples["headwater_dropped_rows_total"] == 2
    assert samples["headwater_state_rows"] == 1
    assert samples["headwater_watermark_timestamp_seconds"] == 1_728_209_400
    assert "headwater_rewindable_batches" in samples


def test_slider_shows_the_golden_states(story: Story, read_only: Served, browser: Browser) -> None:
    """The time machine shows every state of the golden file."""
    with opened(browser, read_only.url) as page:
        for batch in sorted(story.states, reverse=True):
            go_to(page, batch)
            assert shown_counts(page) == story.states[batch], f"batch {batch}"


def test_changes_since_the_batch_before_are_marked(read_only: Served, browser: Browser) -> None:
    """A changed count shows its previous value, and evicted windows are listed as removed."""
    with opened(browser, read_only.url) as page:
        go_to(page, 2)
        row = page.locator(".hw-row-changed")
        expect(row).to_have_count(1)
        expect(row.locator(".hw-was").first).to_have_text("1")
        expect(row.locator(".hw-now").first).to_have_text("3")
        go_to(page, 7)
        expect(summary(page)).to_contain_text("4 removed")
        page.get_by_text("only changes").click()
        expect(page.locator(".hw-row-removed")).to_have_count(4)


def test_search_and_key_history(read_only: Served, browser: Browser) -> None:
    """Search filters the rows; selecting a row shows the history of its key."""
    with opened(browser, read_only.url) as page:
        go_to(page, 6)
        page.get_by_label("search").fill("fire")
        expect(summary(page)).to_contain_text("3 of 5 rows")
        page.locator(".hw-row", has_text="10:00:00").click()
        steps = page.locator(".hw-key .hw-step")
        expect(steps).to_have_count(3)
        shown = " ".join(steps.all_inner_texts())
        assert "absent" in shown and "count 1" in shown and "count 3" in shown
        expect(page.locator(".hw-key-chart svg")).to_be_visible()


def test_read_only_page_offers_no_change(read_only: Served, browser: Browser) -> None:
    """Without --allow-changes there are no buttons that change the checkpoint."""
    with opened(browser, read_only.url) as page:
        go_to(page, 3)
        expect(page.get_by_text("read-only")).to_be_visible()
        expect(page.locator("[data-action]")).to_have_count(0)


def everything_in(folder: Path) -> dict[str, bytes]:
    """Return the content of all files that Spark wrote."""
    found = {}
    for place, folders, names in os.walk(folder):
        if "_headwater" in folders:
            folders.remove("_headwater")
        found |= {str((Path(place) / name).relative_to(folder)): (Path(place) / name).read_bytes() for name in names}
    return found


def test_rewind_with_typed_confirmation_and_undo(copy: Path, browser: Browser) -> None:
    """The plan is shown first, only the exact text confirms it, and undo restores every byte. Kept batches are marked."""
    before = everything_in(copy)
    make_point(LocalTree(copy), "early", at="4")
    with served(copy, "--port", 0, "--allow-changes") as page_of, opened(browser, page_of.url) as page:
        expect(page.locator("[data-kept]")).to_have_count(0)
        go_to(page, 4)
        expect(page.locator("[data-kept=early]")).to_be_visible()
        page.get_by_role("tab", name="Restore points").click()
        expect(page.locator("[data-point=early]")).to_contain_text("batch 4")
        page.locator("[data-action=rewind]").click()
        expect(page.locator("[data-plan]")).to_contain_text("to batch 4")
        confirm, confirmation = page.locator("[data-action=confirm]"), page.locator("input[data-confirm]")
        expect(confirm).to_be_disabled()
        confirmation.fill("rewind to 5")
        expect(confirm).to_be_disabled()
        assert everything_in(copy) == before
        confirmation.fill("rewind to 4")
        confirm.click()
        expect(page.locator("[data-done]")).to_contain_text("batch 5 runs next")
        page.locator("[data-action=close]").click()
        expect(figure(page, "Last batch")).to_have_text("5")
        assert not (copy / "commits" / "5").exists()
        page.locator("[data-action=undo]").click()
        page.locator("input[data-confirm]").fill("undo")
        page.locator("[data-action=confirm]").click()
        expect(page.locator("[data-done]")).to_be_visible()
        page.locator("[data-action=close]").click()
        expect(figure(page, "Last batch")).to_have_text("8")
    assert everything_in(copy) == before


def test_impossible_rewind_is_refused(copy: Path, browser: Browser) -> None:
    """Missing state is reported, and the page refuses a rewind with the message of the command line."""
    for file in (copy / "state").rglob("5.changelog"):
        file.unlink()
    with served(copy, "--port", 0, "--allow-changes") as page_of, opened(browser, page_of.url) as page:
        go_to(page, 4, has_state=False)
        expect(page.locator(".hw-state [role=alert]")).to_contain_text("5.changelog")
        page.locator("[data-action=rewind]").click()
        expect(page.locator(".hw-dialog [role=alert]")).to_contain_text("cannot rewind to batch 4")
        page.locator("[data-action=close]").click()
