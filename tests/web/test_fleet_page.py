"""The page of all streams, in a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from corpus_support import load
from fleet.streams import record, write_stream
from headwater.checkpoint.local_tree import LocalTree
from headwater.timemachine.fork import plan_query_fork
from headwater.web.accounts import Account, PasswordFile, hash_password
from web.serving import figure, go_to, opened, served


def make_streams(root: Path) -> None:
    clean = {"job": "clean", "source": "kafka://b:9092/visits", "sink": "kafka://b:9092/clean"}
    lags = [record(number, lag_rows=1 + 100 * number, state_rows=10) for number in range(8)]
    write_stream(root / "clean", job=clean, records=lags)
    write_stream(root / "totals", source="clean")
    made = load("aggregation-changelog", root.with_name("made")).path
    for number in range(30):
        shutil.copytree(
            made, root / "team" / f"s{number:02}", copy_function=lambda old, new: Path(new).hardlink_to(old)
        )


def test_streams_sorted_by_trouble_and_opened(browser: Browser, tmp_path: Path) -> None:
    """The stream with the most problems is first, new batches and troubles appear, and a click opens the page of a stream."""
    root = tmp_path / "all"
    make_streams(root)
    with served(root, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        streams = page.locator("[data-stream]")
        expect(streams).to_have_count(32)
        assert "token" not in page.url
        expect(streams.first).to_contain_text("lag grew by")
        expect(page.locator("[data-counts]")).to_contain_text("32 streams")
        expect(page.get_by_text("Streams that feed each other")).to_be_visible()
        write_stream(root / "clean", batches=9)
        expect(page.locator('[data-stream="clean"] td').nth(2)).to_have_text("8")
        page.get_by_label("search").fill("s07")
        expect(streams).to_have_count(1)
        page.locator('[data-stream="team/s07"] a').click()
        expect(figure(page, "Last batch")).to_have_text("9")
        expect(page.locator(".hw-checkpoint")).to_have_text("team/s07")
        page.locator(".hw-home").click()
        expect(streams).to_have_count(32)


def test_a_name_that_is_not_utf8(browser: Browser, tmp_path: Path) -> None:
    """A folder whose name is not UTF-8 is shown with its bytes, beside the others, and has a page."""
    write_stream(tmp_path / "good")
    write_stream(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")))
    with served(tmp_path, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        expect(page.locator("[data-stream]")).to_have_count(2)
        page.get_by_text("caf\\xe9").click()
        expect(figure(page, "Last batch")).to_have_text("7")
        expect(page.locator(".hw-checkpoint")).to_have_text("caf\\xe9")


def contrast(page: Page, selector: str) -> float:
    """Return the contrast of a text with the ground behind it, as WCAG computes it."""
    script = """element => {
        const parse = color => color.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92
            : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
        let ground = element, color;
        do { color = parse(getComputedStyle(ground).backgroundColor); ground = ground.parentElement; }
        while (color[3] === 0 && ground);
        const values = [light(parse(getComputedStyle(element).color)), light(color)].sort((a, b) => b - a);
        return (values[0] + 0.05) / (values[1] + 0.05);
    }"""
    return float(page.locator(selector).first.evaluate(script))


@pytest.mark.slow
def test_keys_on_a_dark_phone(browser: Browser, tmp_path: Path) -> None:
    """On a phone and in the dark, the table fits the width, its texts can be read, and keys search, move and open."""
    root = tmp_path / "all"
    make_streams(root)
    with served(root, "--port", 0) as page_of, opened(browser, page_of.url, width=390, dark=True) as page:
        streams = page.locator("[data-stream]")
        expect(streams).to_have_count(32)
        expect(page.locator("[data-counts]")).not_to_contain_text("not checked yet")  # the rows stay in place from here
        expect(page.locator("body")).to_have_class(re.compile("body--dark"))
        for selector in (".hw-stream-name", ".hw-title", "[data-counts]", ".hw-trouble-below", ".hw-graph svg text"):
            assert contrast(page, selector) >= 3, selector
        expect(page.locator("td.hw-optional").first).to_be_hidden()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.keyboard.press("?")
        expect(page.get_by_text("next and previous stream")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_text("next and previous stream")).to_be_hidden()
        page.keyboard.press("/")
        search = page.get_by_label("search")
        expect(search).to_be_focused()
        page.keyboard.type("s0")
        expect(streams).to_have_count(10)
        search.blur()
        with page.expect_download() as saved:
            page.get_by_label("download the streams as CSV").click()
        lines = Path(saved.value.path()).read_text("utf-8").splitlines()
        assert (lines[0].split(",")[:3], len(lines)) == (["CHECKPOINT", "NAME", "STATUS"], 11)
        page.keyboard.press("ArrowDown")
        expect(page.locator('[data-stream="team/s00"] a')).to_be_focused()
        page.keyboard.press("ArrowDown")
        expect(page.locator('[data-stream="team/s01"] a')).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator(".hw-checkpoint")).to_have_text("team/s01")
        expect(figure(page, "Last batch")).to_have_text("9")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_fork_beside_its_original_and_search_over_all_batches(browser: Browser, tmp_path: Path) -> None:
    """The page of a fork and that of its original show both on one time axis; a key is found in all batches."""
    root = tmp_path / "all"
    path = root / "visits"
    shutil.copytree(load("aggregation-changelog", tmp_path / "made").path, path)
    plan_query_fork(LocalTree(path), str(root / "trial"), at="4").apply()
    with served(root, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        page.locator('[data-stream="trial"] a').click()
        expect(page.locator("[data-fork]")).to_have_text("trial has run no batch of its own yet.")
        page.locator(".hw-home").click()
        page.locator('[data-stream="visits"] a').click()
        expect(page.locator("[data-fork]")).to_be_visible()
        expect(page.locator(".hw-fork-chart svg")).to_contain_text("batch 4")
        page.get_by_label("find a key").fill("bob")
        page.keyboard.press("Enter")
        expect(page.locator("[data-found]")).to_contain_text("in batch 0 to 9 (2 partitions")


def test_links_to_batches_and_keys_and_comparison(browser: Browser, tmp_path: Path) -> None:
    """The address leads back to the selected batch, the compared one and the key; the state names its batch."""
    path = load("aggregation-changelog", tmp_path).path
    with served(path, "--port", 0) as page_of:
        with opened(browser, page_of.url) as page:
            go_to(page, 3)
            page.keyboard.press("c")
            expect(page.locator("[data-compare]")).to_contain_text("Compared with 3")
            go_to(page, 6)
            expect(page.locator("[data-other]")).to_have_attribute("data-other", "3")
            expect(page.locator("[data-shown]")).to_have_text("State as of batch 6, changes since 3")
            expect(page.locator("[data-skew]")).to_contain_text("Batch 6: ")
            page.locator(".hw-row").first.click()
            name = page.locator(".hw-key-name").inner_text()
            page.wait_for_url("**key=**")
            link = page.url
            assert "token" not in link and "batch=6" in link and "since=3" in link
        with opened(browser, link.replace("?", f"?token={page_of.token}&")) as page:
            expect(page.locator("[data-shown]")).to_have_text("State as of batch 6, changes since 3")
            expect(page.locator(".hw-key-name")).to_have_text(name)


def test_keys_and_downloads(browser: Browser, tmp_path: Path) -> None:
    """The keys are listed and move through the batches; a chart is saved as PNG, and the batches as CSV."""
    path = load("aggregation-changelog", tmp_path).path
    with served(path, "--port", 0) as page_of, opened(browser, page_of.url) as page:
        selected = page.locator("[data-batch]")
        expect(selected).to_have_attribute("data-batch", "9")
        page.keyboard.press("Home")
        expect(selected).to_have_attribute("data-batch", "0")
        page.keyboard.press("End")
        expect(selected).to_have_attribute("data-batch", "9")
        page.keyboard.press("?")
        expect(page.get_by_text("oldest and newest batch")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_text("oldest and newest batch")).to_be_hidden()
        with page.expect_download() as picture:
            page.get_by_label("save Event time as PNG").click()
        assert picture.value.suggested_filename == "event-time.png"
        assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")
        with page.expect_download() as table:
            page.get_by_label("download the batches as CSV").click()
        lines = Path(table.value.path()).read_text("utf-8").splitlines()
        assert (lines[0].split(",")[:2], len(lines)) == (["BATCH", "STATUS"], 11)


def test_change_is_journaled_with_the_name_of_the_user(browser: Browser, tmp_path: Path) -> None:
    """A user logs in, rewinds a stream from its page, and the journal names the user."""
    path = load("rate", tmp_path).path
    users = PasswordFile(tmp_path / "users")
    users.write({"ann": Account("ann", "change", hash_password("anns password"))})
    options = ("--port", 0, "--allow-changes", "--password-file", users.path)
    with served(path, *options) as page_of, opened(browser, f"{page_of.url}login") as page:
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill("anns password")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("[data-user]")).to_have_text("ann")
        go_to(page, 2)
        page.locator("[data-action=rewind]").click()
        page.locator("input[data-confirm]").fill("rewind to 2")
        page.locator("[data-action=confirm]").click()
        expect(page.locator("[data-done]")).to_be_visible()
        page.locator("[data-action=close]").click()
        expect(page.get_by_text("by ann")).to_be_visible()
        page.get_by_label("log out").click()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
    (entry,) = (path / "_headwater" / "journal").glob("*.json")
    assert json.loads(entry.read_text())["change"]["details"]["by"] == "ann"
