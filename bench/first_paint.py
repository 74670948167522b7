"""Measure the page of many streams: from opening its address to the first table, and what a refresh costs.

One real checkpoint is made with a job of the gallery, and then copied, with hard links, as often as asked for. A browser
opens ``headwater ui`` on all of them: at once after the start, while they are still being read, and again afterwards.
Run it with ``python bench/first_paint.py --streams 500``; with ``--cold``, as root on Linux, the operating system's
cache is dropped first. It prints a table and then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from headwater.fleet.fleet import Fleet

HEADWATER = Path(sys.executable).with_name("headwater")
BATCHES = 20
ROUNDS = 5
SHOWN_ROWS = 50
PAINT = "first-contentful-paint"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def make_checkpoint(folder: Path) -> Path:
    """Run a stateful job of the gallery over a few files, one per batch."""
    inbox = folder / "in"
    inbox.mkdir()
    for number in range(BATCHES):
        lines = [
            {"event_id": f"{number}-{row}", "visit_id": row, "event_time": f"2026-07-01T10:{number:02}:{row % 60:02}Z"}
            for row in range(200)
        ]
        (inbox / f"{number:02}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [HEADWATER, "run", "visits-windows-counter", "--trigger", "available-now", "--sink", "console:"]
    source = f"files:{inbox}?format=json&maxFilesPerTrigger=1"
    subprocess.run(
        [*command, "--source", source, "--checkpoint", folder / "made"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return folder / "made"


def copy_checkpoint(made: Path, root: Path, streams: int) -> None:
    for number in range(streams):
        target = root / f"team{number % 10}" / f"stream{number:03}"
        shutil.copytree(made, target, copy_function=lambda old, new: Path(new).hardlink_to(old))


def drop_caches() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def start_page(root: Path) -> tuple[subprocess.Popen[str], str, float]:
    """Return the server, its URL, and the seconds until it has printed it."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [HEADWATER, "ui", root, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    return process, url, time.perf_counter() - started


def time_to_table(browser: Browser, url: str, rows: int) -> tuple[float, float]:
    """Return the seconds from opening the address to the first paint, and to the first page of the table."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    started = time.perf_counter()
    page.goto(url, wait_until="commit")
    page.wait_for_function(f"document.querySelectorAll('[data-stream]').length >= {rows}", polling=20, timeout=120_000)
    table = time.perf_counter() - started
    page.wait_for_function(f"performance.getEntriesByName({PAINT!r}).length", timeout=120_000)
    paint = page.evaluate(f"performance.getEntriesByName({PAINT!r})[0].startTime")
    context.close()
    return paint / 1000, table


def measure_refresh(root: Path) -> dict[str, float]:
    """Return the seconds of a first refresh, and of one in which nothing has changed, without a browser."""
    fleet = Fleet([str(root)])
    started = time.perf_counter()
    fleet.refresh()
    first = time.perf_counter() - started
    again = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        fleet.refresh()
        again.append(time.perf_counter() - started)
    return {"first": first, "unchanged": statistics.median(again), "summaries_read": fleet.summaries_read}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--cold", action="store_true", help="drop the operating system's cache before each start")
    options = parser.parse_args()
    rows = min(SHOWN_ROWS, options.streams)
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder) / "all"
        copy_checkpoint(make_checkpoint(Path(folder)), root, options.streams)
        path = next(found for name in CHROMIUM if (found := shutil.which(name)))
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        time_to_table_of_nothing(browser)
        for _ in range(ROUNDS):
            if options.cold:
                drop_caches()
            server, url, start = start_page(root)
            try:
                paint, table = time_to_table(browser, url, rows)
                _, table_again = time_to_table(browser, url, rows)
            finally:
                server.send_signal(signal.SIGINT)
                server.wait()
            rounds.append({"start": start, "paint": paint, "table": table, "table_again": table_again})
        browser.close()
        refresh = measure_refresh(root)
    medians = {name: round(statistics.median(one[name] for one in rounds), 2) for name in rounds[0]}
    worst = round(max(one["table"] for one in rounds), 2)
    print(
        f"{options.streams} checkpoints of {BATCHES} batches, {ROUNDS} rounds, {'cold' if options.cold else 'warm'} cache"
    )
    print(f"  start of headwater ui until its URL    {medians['start']:6.2f} s")
    print(f"  first paint, at once after the start   {medians['paint']:6.2f} s")
    print(f"  first {rows} rows of the table            {medians['table']:6.2f} s   (worst {worst:.2f} s)")
    print(f"  the same again, all streams read       {medians['table_again']:6.2f} s")
    print(f"  reading all, without a browser         {refresh['first']:6.2f} s")
    print(f"  a refresh in which nothing has changed {refresh['unchanged'] * 1000:6.0f} ms")
    print(json.dumps({"streams": options.streams, "cold": options.cold, **medians, "worst": worst, "refresh": refresh}))


def time_to_table_of_nothing(browser: Browser) -> None:
    """Open a page once, so that the start of the browser itself is not measured."""
    context = browser.new_context()
    context.new_page().goto("about:blank")
    context.close()


if __name__ == "__main__":
    main()
