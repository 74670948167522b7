"""Run the main job for half an hour at the highest rate that it sustains, with its page open.

The run passes if every record is counted once, the driver's memory, the state and the checkpoint stop growing, and the page
shows the newest batch to the end. The figures go to soak/load.json and docs/reliability.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.progress_files import ProgressTail
from soak.ledger import PAGE, replace_between
from soak.sampling import Sample, find_jvm, live_heap_megabytes, measure_folder, resident_megabytes
from soak.services import KafkaService

FILE = Path(__file__).with_name("load.json")
BEGIN, END = "<!-- load: begin -->", "<!-- load: end -->"
FIRST_RATE, STEP, STEP_SECONDS = 60_000, 1.3, 30.0
# A rate just above the limit causes a lag of little more than a second in half a minute, and of minutes in half an hour.
MAX_LAG_OF_A_STEP, MAX_LAG = 1.0, 4.0
LOWEST_RATE = 1_000
MARGIN = 0.9
RETAINED_BYTES = 2 * 1024**3
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Job:
    """The stateful browser statistics with short windows, so that many of them close within the half hour."""

    def __init__(self, folder: Path, address: str) -> None:
        self.checkpoint, self.topic = folder / "checkpoint", f"kafka://{address}/visits"
        self._log = (folder / "job.log").open("wb")
        arguments = [
            "--source",
            self.topic,
            "--sink",
            f"kafka://{address}/statistics",
            "--checkpoint",
            str(self.checkpoint),
        ]
        arguments += ["--set", "window=10 seconds", "--set", "watermark=1 minute"]
        self.process = _headwater("run", "browser-stats-stateful", *arguments, stdout=self._log, stderr=self._log)
        self._tail = ProgressTail(LocalTree(self.checkpoint))

    @property
    def last(self) -> tuple[int, int]:
        """The newest batch and the number of state rows after it."""
        records = self._tail.records()
        newest = max(records, default=-1)
        return newest, (records[newest].state_rows or 0) if records else 0

    @property
    def read(self) -> int:
        return sum(record.input_rows for record in self._tail.records().values())

    def drain(self, sent: int, timeout: float) -> float | None:
        """Wait until everything that was sent is read, and return the seconds; None after the timeout."""
        began = time.monotonic()
        while self.read < sent:
            if self.process.poll() is not None:
                raise RuntimeError(f"the job exited with status {self.process.returncode}; see {self._log.name}")
            if time.monotonic() - began > timeout:
                return None
            time.sleep(0.1)
        return time.monotonic() - began


class Feed:
    """Runs generators one after another and counts the records that they send."""

    def __init__(self, topic: str) -> None:
        self._topic, self.sent = topic, 0

    @contextlib.contextmanager
    def at(self, rate: int) -> Iterator[None]:
        arguments = ["generate", "visits", "--to", self._topic, "--rate", str(rate), "--json"]
        generator = _headwater(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            generator.send_signal(signal.SIGINT)
            out, _ = generator.communicate(timeout=60)
            self.sent += json.loads(out)["records"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.load", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to run (default: %(default)s)")
    parser.add_argument("--rate", type=int, help="records a second (default: search for the highest sustainable rate)")
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it (default: a temporary folder)")
    options = parser.parse_args()
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="headwater-load-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    kafka = KafkaService(folder)
    try:
        figures = _run(kafka, folder, options.rate, options.minutes * 60)
    finally:
        kafka.stop()
    if options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    FILE.write_text(json.dumps(figures, indent=1) + "\n")
    replace_between(PAGE, BEGIN, END, format_table(figures))
    print(format_table(figures))
    return 0 if all(verdict for verdict in figures["verdicts"].values()) else 1


def _run(kafka: KafkaService, folder: Path, rate: int | None, seconds: float) -> dict[str, Any]:
    kafka.start()
    _create_topics(kafka.address)
    job = Job(folder, kafka.address)
    feed, is_highest = Feed(job.topic), rate is None
    try:
        with feed.at(FIRST_RATE):
            _wait_for_batches(job, 20)
        job.drain(feed.sent, 120)
        with _open_page(job) as (page_pid, batch_on_page):
            rate = rate or _find_highest_rate(job, feed)
            with feed.at(rate):
                samples, heaps = _take_samples(job, seconds, page_pid, batch_on_page)
        lag = job.drain(feed.sent, 120)
    finally:
        job.process.send_signal(signal.SIGINT)
        job.process.wait(120)
    counted = _count_results(kafka)
    return {
        "minutes": round(seconds / 60, 1),
        "rate": rate,
        "highest": is_highest,
        "sent": feed.sent,
        "counted": counted,
        "seconds_behind": lag,
        "live_heap_megabytes": heaps,
        "verdicts": _judge(samples, heaps, lag=lag, lost=feed.sent - counted),
        "looks": [sample.as_dict() for sample in samples],
    }


def _create_topics(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    bounded = {"retention.bytes": str(RETAINED_BYTES), "segment.bytes": str(128 * 1024**2)}
    topics = [NewTopic("visits", 2, config=bounded), NewTopic("statistics", 2)]
    client = AdminClient({"bootstrap.servers": address})
    for created in client.create_topics(topics).values():
        created.result()


def _wait_for_batches(job: Job, count: int) -> None:
    deadline = time.monotonic() + 180
    while job.last[0] < count:
        if time.monotonic() > deadline or job.process.poll() is not None:
            raise RuntimeError("the job does not process batches; see job.log")
        time.sleep(0.5)


def _find_highest_rate(job: Job, feed: Feed) -> int:
    """Raise the rate until the job lags when the generator stops; return a little less than the last rate without lag."""
    good, rate = 0, FIRST_RATE
    while True:
        began, before = time.monotonic(), feed.sent
        with feed.at(rate):
            time.sleep(STEP_SECONDS)
        sent = (feed.sent - before) / (time.monotonic() - began)
        lag = job.drain(feed.sent, 300)
        print(f"{rate:>9,} a second: lag {'over 300' if lag is None else f'{lag:.1f}'} s", flush=True)
        kept_up = lag is not None and lag <= MAX_LAG_OF_A_STEP and sent >= 0.8 * rate
        if good and not kept_up:
            return int(good * MARGIN) // 1000 * 1000
        good, rate = (rate, int(rate * STEP)) if kept_up else (0, rate // 2)
        if rate < LOWEST_RATE:
            raise RuntimeError(f"the job lags even at {2 * rate:,} records a second; see job.log")


@contextlib.contextmanager
def _open_page(job: Job) -> Iterator[tuple[int, Any]]:
    """Open ``headwater ui`` in Chromium; yield the server's pid and a function that returns the batch on the page."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "Chromium is not installed; run: apt-get install chromium"
    server = _headwater("ui", str(job.checkpoint), "--port", "0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().decode().strip()
        with sync_playwright() as playwright:
            page = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS).new_page()
            page.goto(url)
            shown = page.locator('[data-figure="Last batch"] .hw-figure-value')
            yield server.pid, lambda: int(shown.inner_text().replace(",", "") or -1)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _take_samples(
    job: Job, seconds: float, page_pid: int, batch_on_page: Any
) -> tuple[list[Sample], list[float | None]]:
    began, samples, heaps = time.monotonic(), [], []
    jvm = find_jvm(job.process.pid)
    assert jvm is not None
    marks = [seconds / 3, seconds * 2 / 3, seconds - 1]
    while (now := time.monotonic() - began) < seconds:
        if job.process.poll() is not None:
            raise RuntimeError("the job ended early; see job.log")
        files, megabytes = measure_folder(job.checkpoint)
        batch, state_rows = job.last
        sample = Sample(
            round(now, 1),
            batch,
            state_rows,
            resident_megabytes(job.process.pid),
            resident_megabytes(page_pid),
            files,
            megabytes,
            batch_on_page(),
        )
        samples.append(sample)
        print(json.dumps(sample.as_dict()), flush=True)
        if marks and now >= marks[0]:
            heaps.append(live_heap_megabytes(jvm))
            marks.pop(0)
        time.sleep(5)
    if marks:
        heaps.append(live_heap_megabytes(jvm))
    return samples, heaps


def _judge(samples: list[Sample], heaps: list[float | None], *, lag: float | None, lost: int) -> dict[str, bool]:
    """Compare the last third of the run with the second, in which nothing may grow any more."""
    third = len(samples) // 3
    middle, end = samples[third : 2 * third], samples[2 * third :]

    def is_flat(name: str, slack: float) -> bool:
        return bool(max(getattr(one, name) for one in end) <= slack * max(getattr(one, name) for one in middle))

    known = [heap for heap in heaps if heap is not None]
    return {
        "nothing lost": lost == 0,
        "kept up": lag is not None and lag <= MAX_LAG,
        "driver's memory flat": is_flat("driver_megabytes", 1.05),
        "live heap flat": len(known) < 2 or known[-1] <= 1.1 * known[0] + 10,
        "state bounded": is_flat("state_rows", 1.1),
        "checkpoint bounded": is_flat("checkpoint_files", 1.1),
        "page up to date": all(one.batch - one.batch_on_page <= 30 for one in samples[third:]),
    }


def _count_results(kafka: KafkaService) -> int:
    """Return the sum of the last count of each browser and window."""
    last: dict[str, int] = {}
    for _, value in kafka.read("statistics"):
        row = json.loads(value or b"{}")
        key = json.dumps([row["browser"], row["window"]])
        last[key] = max(last.get(key, 0), row["count"])
    return sum(last.values())


def format_table(figures: dict[str, Any]) -> str:
    samples = figures["looks"]
    third = len(samples) // 3

    def format_range(name: str, unit: str = "") -> str:
        values = [one[name] for one in samples[third:]]
        return f"{min(values):,} to {max(values):,}{unit}"

    lag = "over 120 s" if figures["seconds_behind"] is None else f"{figures['seconds_behind']:.1f} s"
    note = ", a tenth below the highest rate that it kept up with" if figures["highest"] else ""
    rate = f"{figures['rate']:,}{note}"
    checkpoint = format_range("checkpoint_files"), format_range("checkpoint_megabytes", " MB")
    heaps = ", ".join(f"{heap:.0f} MB" for heap in figures["live_heap_megabytes"] if heap is not None)
    rows = [
        ("duration", f"{figures['minutes']:g} minutes"),
        ("records a second", rate),
        ("records sent and counted", f"{figures['sent']:,} and {figures['counted']:,}"),
        ("batches", f"{samples[-1]['batch']:,}"),
        ("lag when the generator stopped", lag),
        ("driver memory (JVM and Python) after the first third", format_range("driver_megabytes", " MB")),
        ("live heap after one third, two thirds and at the end", heaps),
        ("state rows after the first third", format_range("state_rows")),
        ("checkpoint files after the first third", ", ".join(checkpoint)),
        ("memory of the page's server", format_range("page_megabytes", " MB")),
        *((name, "yes" if verdict else "**no**") for name, verdict in figures["verdicts"].items()),
    ]  # fmt: skip
    return "\n".join(["| figure | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _headwater(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headwater", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **settings)


if __name__ == "__main__":
    sys.exit(main())
