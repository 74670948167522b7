"""Run the main job for half an hour or longer, with restore points, rewinds and its page open.

The run passes if every record is counted once, the driver's memory, the state and the checkpoint stop growing, and the page
shows the newest batch to the end. Its figures are added to soak/load.jsonl and docs/reliability.md.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.progress_files import ProgressTail
from soak.ledger import PAGE, commit, replace_between
from soak.load_report import format_table, judge, ranges
from soak.sampling import Sample, find_jvm, live_heap_megabytes, measure_folder, resident_megabytes
from soak.services import KafkaService

FILE = Path(__file__).with_name("load.jsonl")
BEGIN, END = "<!-- load: begin -->", "<!-- load: end -->"
FIRST_RATE, STEP, STEP_SECONDS = 60_000, 1.3, 30.0
# A rate just above the limit causes a lag of little more than a second in half a minute, and of minutes in half an hour.
MAX_LAG_OF_A_STEP = 1.0
LOWEST_RATE = 1_000
RETAINED_BYTES = 2 * 1024**3
REWOUND_BATCHES = 40  # Spark keeps 100
SETTLING_SECONDS = 60.0  # after a rewind: the job reads the backlog, and the page follows
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Job:
    """The stateful browser statistics with short windows, so that many of them close, and a restore point a minute."""

    def __init__(self, folder: Path, address: str) -> None:
        self.checkpoint, self.topic = folder / "checkpoint", f"kafka://{address}/visits"
        self._sink, self._log = f"kafka://{address}/statistics", folder / "job.log"
        self._tail = ProgressTail(LocalTree(self.checkpoint))
        self.start()

    def start(self) -> None:
        ends = ["--source", self.topic, "--sink", self._sink, "--checkpoint", str(self.checkpoint)]
        settings = ["--set", "window=10 seconds", "--set", "watermark=1 minute"]
        points = ["--keep-every", "1m", "--keep-for", "10m"]
        with self._log.open("ab") as log:
            self.process = _headwater(
                "run", "browser-stats-stateful", *ends, *settings, *points, stdout=log, stderr=log
            )

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)

    def rewind(self, to: str) -> int:
        """Stop the job, rewind it, and start it again; return the number of batches that were undone."""
        before = self.newest
        _run_headwater("stop", str(self.checkpoint), "--wait", "120")
        self.process.wait(120)
        _run_headwater("rewind", str(self.checkpoint), "--to", to, "--yes")
        undone = before - self.newest
        self.start()
        return undone

    @property
    def points(self) -> list[str]:
        """The names of the restore points, oldest first."""
        lines = _run_headwater("kept", str(self.checkpoint), "--json").splitlines()
        kept = sorted((json.loads(line) for line in lines), key=lambda point: point["kept_at"])
        return [point["name"] for point in kept]

    @property
    def newest(self) -> int:
        """The newest committed batch, or -1."""
        return max((int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*")), default=-1)

    @property
    def state_rows(self) -> int:
        """The rows of the state after the newest batch."""
        record = self._tail.records().get(self.newest)
        return (record and record.state_rows) or 0

    @property
    def read(self) -> int:
        """The records before the end of the newest committed batch, in a topic that begins at offset 0."""
        planned = self.checkpoint / "offsets" / str(self.newest)
        if not planned.exists():
            return 0
        position = json.loads(planned.read_text().splitlines()[-1])
        return sum(offset for partitions in position.values() for offset in partitions.values())

    def drain(self, sent: int, timeout: float) -> float | None:
        """Wait until everything that was sent is read, and return the seconds; None after the timeout."""
        began = time.monotonic()
        while self.read < sent:
            if self.process.poll() is not None:
                raise RuntimeError(f"the job exited with status {self.process.returncode}; see {self._log}")
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
    parser.add_argument("--rate", type=int, help="records a second (default: a share of the highest sustainable rate)")
    parser.add_argument("--share", type=float, default=0.9, help="share of the highest rate (default: %(default)s)")
    parser.add_argument("--rewind-every", type=float, metavar="MINUTES", help="rewind the job this often")
    parser.add_argument("--keep", type=Path, help="work in this folder and keep it (default: a temporary folder)")
    options = parser.parse_args()
    folder = (options.keep or Path(tempfile.mkdtemp(prefix="headwater-load-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    kafka = KafkaService(folder)
    try:
        figures = _run(kafka, folder, options)
    finally:
        kafka.stop()
    if options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    with FILE.open("a") as file:
        file.write(json.dumps(figures) + "\n")
    table = format_table([json.loads(line) for line in FILE.read_text().splitlines()])
    replace_between(PAGE, BEGIN, END, table)
    print(table)
    return 0 if all(verdict for verdict in figures["verdicts"].values()) else 1


def _run(kafka: KafkaService, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    kafka.start()
    _create_topics(kafka.address)
    job, highest = Job(folder, kafka.address), None
    feed, seconds = Feed(job.topic), options.minutes * 60
    rewinds = Rewinds(job, options.rewind_every * 60 if options.rewind_every else None)
    try:
        with feed.at(FIRST_RATE):
            _wait_for_batches(job, 20)
        job.drain(feed.sent, 120)
        with _open_page(job) as (page_pid, batch_on_page):
            if options.rate is None:
                highest = _find_highest_rate(job, feed)
            rate = options.rate or int(highest * options.share) // 1000 * 1000
            with feed.at(rate):
                samples, heaps = _take_samples(job, seconds, page_pid, batch_on_page, rewinds)
        lag = job.drain(feed.sent, 120)
        points = len(job.points)
    finally:
        job.end()
    counted = _count_results(kafka)
    return {
        "ended": datetime.now(UTC).isoformat(timespec="minutes"),
        "commit": commit(),
        "minutes": round(seconds / 60, 1),
        "rate": rate,
        "highest": highest,
        "sent": feed.sent,
        "counted": counted,
        "batches": samples[-1].batch,
        "rewinds": rewinds.done,
        "points": points,
        "seconds_behind": lag,
        "live_heap_megabytes": heaps,
        "ranges": ranges(samples),
        "verdicts": judge(samples, heaps, lag=lag, lost=feed.sent - counted),
    }


@dataclass
class Rewinds:
    """Rewinds a job every so many seconds: in turn by a number of batches, and to the newest restore point."""

    job: Job
    every: float | None
    done: list[int] = field(default_factory=list)
    """For each rewind, how many batches it undid."""

    def is_due(self, second: float, end: float) -> bool:
        """Return whether it is time for the next rewind, which the rest of the run shows the effects of."""
        return self.every is not None and second >= self.every * (len(self.done) + 1) and end - second > 120

    def rewind(self) -> None:
        points = self.job.points
        self.done.append(self.job.rewind(points[-1] if points and len(self.done) % 2 else f"HEAD~{REWOUND_BATCHES}"))


def _create_topics(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    bounded = {"retention.bytes": str(RETAINED_BYTES), "segment.bytes": str(128 * 1024**2)}
    topics = [NewTopic("visits", 2, config=bounded), NewTopic("statistics", 2)]
    client = AdminClient({"bootstrap.servers": address})
    for created in client.create_topics(topics).values():
        created.result()


def _wait_for_batches(job: Job, count: int) -> None:
    deadline = time.monotonic() + 180
    while job.newest < count:
        if time.monotonic() > deadline or job.process.poll() is not None:
            raise RuntimeError("the job does not process batches; see job.log")
        time.sleep(0.5)


def _find_highest_rate(job: Job, feed: Feed) -> int:
    """Raise the rate until the job lags when the generator stops; return the last rate without lag."""
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
            return good
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
    job: Job, seconds: float, page_pid: int, batch_on_page: Callable[[], int], rewinds: Rewinds
) -> tuple[list[Sample], list[float | None]]:
    """Take samples of the job and the page; none while the job recovers from a rewind."""
    began, samples, heaps = time.monotonic(), list[Sample](), list[float | None]()
    marks = [seconds / 3, seconds * 2 / 3, seconds - 1]
    while (now := time.monotonic() - began) < seconds:
        if rewinds.is_due(now, seconds):
            rewinds.rewind()
            print(json.dumps({"second": round(now, 1), "batches undone": rewinds.done[-1]}), flush=True)
            time.sleep(SETTLING_SECONDS)
            continue
        if job.process.poll() is not None:
            raise RuntimeError("the job ended early; see job.log")
        files, megabytes = measure_folder(job.checkpoint)
        sample = Sample(
            round(now, 1),
            job.newest,
            job.state_rows,
            resident_megabytes(job.process.pid),
            resident_megabytes(page_pid),
            files,
            megabytes,
            batch_on_page(),
        )
        samples.append(sample)
        print(json.dumps(sample.as_dict()), flush=True)
        if marks and now >= marks[0]:
            heaps.append(_live_heap(job))
            marks.pop(0)
        time.sleep(5)
    if marks:
        heaps.append(_live_heap(job))
    return samples, heaps


def _live_heap(job: Job) -> float | None:
    jvm = find_jvm(job.process.pid)
    return None if jvm is None else live_heap_megabytes(jvm)


def _count_results(kafka: KafkaService) -> int:
    """Return the sum of the last count of each browser and window."""
    last: dict[str, int] = {}
    for _, value in kafka.read("statistics"):
        row = json.loads(value or b"{}")
        key = json.dumps([row["browser"], row["window"]])
        last[key] = max(last.get(key, 0), row["count"])
    return sum(last.values())


def _run_headwater(*arguments: str) -> str:
    """Run a command to its end and return what it prints."""
    command = [sys.executable, "-m", "headwater", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"headwater {arguments[0]} failed: {done.stderr}")
    return done.stdout


def _headwater(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headwater", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **settings)


if __name__ == "__main__":
    sys.exit(main())
