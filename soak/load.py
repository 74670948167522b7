"""``python -m soak.load``: the main job at the highest rate that keeps up, for half an hour, with its page open.

It demands that every record is counted once, that the driver's memory, the state and the checkpoint stop growing, and
that the page shows the newest batch to the end. The figures go to ``soak/load.json``, and into docs/reliability.md.
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

from headwater.checkpoint.local_files import LocalFiles
from headwater.checkpoint.progress_log import ProgressTail
from soak.ledger import PAGE, write_between
from soak.services import KafkaService
from soak.vitals import Vitals, jvm_below, live_heap_megabytes, resident_megabytes, size_of

FILE = Path(__file__).with_name("load.json")
BEGIN, END = "<!-- load: begin -->", "<!-- load: end -->"
FIRST_RATE, STEP, STEP_SECONDS = 60_000, 1.3, 30.0
# A rate at the edge shows in half a minute as little more than a second, and in half an hour as minutes.
MOST_SECONDS_BEHIND_A_STEP, MOST_SECONDS_BEHIND = 1.0, 4.0
SLOWEST_RATE = 1_000
MARGIN = 0.9
KEPT_BYTES = 2 * 1024**3
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


class Job:
    """The stateful browser statistics with short windows, so that many of them close within the half hour."""

    def __init__(self, folder: Path, address: str) -> None:
        self.checkpoint, self.topic = folder / "checkpoint", f"kafka://{address}/visits"
        self._log = (folder / "job.log").open("wb")
        words = [
            "--source",
            self.topic,
            "--sink",
            f"kafka://{address}/statistics",
            "--checkpoint",
            str(self.checkpoint),
        ]
        words += ["--set", "window=10 seconds", "--set", "watermark=1 minute"]
        self.process = _headwater("run", "browser-stats-stateful", *words, stdout=self._log, stderr=self._log)
        self._tail = ProgressTail(LocalFiles(self.checkpoint))

    @property
    def last(self) -> tuple[int, int]:
        """The newest batch, and the rows of state after it."""
        records = self._tail.records()
        newest = max(records, default=-1)
        return newest, (records[newest].state_rows or 0) if records else 0

    @property
    def read(self) -> int:
        return sum(record.input_rows for record in self._tail.records().values())

    def drain(self, sent: int, patience: float) -> float | None:
        """How long it took to read all that was sent; None when it took too long."""
        began = time.monotonic()
        while self.read < sent:
            if self.process.poll() is not None:
                raise RuntimeError(f"the job ended with {self.process.returncode}: see {self._log.name}")
            if time.monotonic() - began > patience:
                return None
            time.sleep(0.1)
        return time.monotonic() - began


class Feed:
    """Generators one after the other, and how much they have sent."""

    def __init__(self, topic: str) -> None:
        self._topic, self.sent = topic, 0

    @contextlib.contextmanager
    def at(self, rate: int) -> Iterator[None]:
        words = ["generate", "visits", "--to", self._topic, "--rate", str(rate), "--json"]
        generator = _headwater(*words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            generator.send_signal(signal.SIGINT)
            out, _ = generator.communicate(timeout=60)
            self.sent += json.loads(out)["records"]


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m soak.load", description=__doc__)
    words.add_argument("--minutes", type=float, default=30.0)
    words.add_argument("--rate", type=int, help="records a second; default: the highest that keeps up is looked for")
    words.add_argument("--keep", type=Path, help="a folder to work in; default: one in the temporary folder")
    chosen = words.parse_args()
    folder = (chosen.keep or Path(tempfile.mkdtemp(prefix="headwater-load-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    kafka = KafkaService(folder)
    try:
        figures = _run(kafka, folder, chosen.rate, chosen.minutes * 60)
    finally:
        kafka.stop()
    if chosen.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    FILE.write_text(json.dumps(figures, indent=1) + "\n")
    write_between(PAGE, BEGIN, END, table(figures))
    print(table(figures))
    return 0 if all(verdict for verdict in figures["verdicts"].values()) else 1


def _run(kafka: KafkaService, folder: Path, rate: int | None, seconds: float) -> dict[str, Any]:
    kafka.start()
    _create_topics(kafka.address)
    job = Job(folder, kafka.address)
    feed, was_looked_for = Feed(job.topic), rate is None
    try:
        with feed.at(FIRST_RATE):
            _wait_for_batches(job, 20)
        job.drain(feed.sent, 120)
        with _page(job) as (page_pid, batch_on_page):
            rate = rate or _highest_rate(job, feed)
            with feed.at(rate):
                looks, heaps = _hold(job, seconds, page_pid, batch_on_page)
        behind = job.drain(feed.sent, 120)
    finally:
        job.process.send_signal(signal.SIGINT)
        job.process.wait(120)
    counted = _counted(kafka)
    return {
        "minutes": round(seconds / 60, 1),
        "rate": rate,
        "highest": was_looked_for,
        "sent": feed.sent,
        "counted": counted,
        "seconds_behind": behind,
        "live_heap_megabytes": heaps,
        "verdicts": _verdicts(looks, heaps, behind=behind, lost=feed.sent - counted),
        "looks": [look.as_dict() for look in looks],
    }


def _create_topics(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    bounded = {"retention.bytes": str(KEPT_BYTES), "segment.bytes": str(128 * 1024**2)}
    topics = [NewTopic("visits", 2, config=bounded), NewTopic("statistics", 2)]
    client = AdminClient({"bootstrap.servers": address})
    for made in client.create_topics(topics).values():
        made.result()


def _wait_for_batches(job: Job, count: int) -> None:
    deadline = time.monotonic() + 180
    while job.last[0] < count:
        if time.monotonic() > deadline or job.process.poll() is not None:
            raise RuntimeError("the job does not get going: see job.log")
        time.sleep(0.5)


def _highest_rate(job: Job, feed: Feed) -> int:
    """Faster and faster until the job is behind when the generator stops; then a little less than the last good one."""
    good, rate = 0, FIRST_RATE
    while True:
        began, before = time.monotonic(), feed.sent
        with feed.at(rate):
            time.sleep(STEP_SECONDS)
        sent = (feed.sent - before) / (time.monotonic() - began)
        behind = job.drain(feed.sent, 300)
        print(f"{rate:>9,} a second: {'never' if behind is None else f'{behind:.1f} s'} behind", flush=True)
        kept_up = behind is not None and behind <= MOST_SECONDS_BEHIND_A_STEP and sent >= 0.8 * rate
        if good and not kept_up:
            return int(good * MARGIN) // 1000 * 1000
        good, rate = (rate, int(rate * STEP)) if kept_up else (0, rate // 2)
        if rate < SLOWEST_RATE:
            raise RuntimeError("the job keeps up with no rate at all: see job.log")


@contextlib.contextmanager
def _page(job: Job) -> Iterator[tuple[int, Any]]:
    """``headwater ui`` with Chromium looking at it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "the page needs a browser: apt install chromium"
    server = _headwater("ui", str(job.checkpoint), "--port", "0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().decode().strip()
        with sync_playwright() as playwright:
            page = playwright.chromium.launch(executable_path=chromium, args=FLAGS).new_page()
            page.goto(url)
            shown = page.locator('[data-figure="Last batch"] .hw-figure-value')
            yield server.pid, lambda: int(shown.inner_text().replace(",", "") or -1)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _hold(job: Job, seconds: float, page_pid: int, batch_on_page: Any) -> tuple[list[Vitals], list[float | None]]:
    began, looks, heaps = time.monotonic(), [], []
    jvm = jvm_below(job.process.pid)
    assert jvm is not None
    marks = [seconds / 3, seconds * 2 / 3, seconds - 1]
    while (now := time.monotonic() - began) < seconds:
        if job.process.poll() is not None:
            raise RuntimeError("the job has ended: see job.log")
        files, megabytes = size_of(job.checkpoint)
        batch, state_rows = job.last
        look = Vitals(
            round(now, 1),
            batch,
            state_rows,
            resident_megabytes(job.process.pid),
            resident_megabytes(page_pid),
            files,
            megabytes,
            batch_on_page(),
        )
        looks.append(look)
        print(json.dumps(look.as_dict()), flush=True)
        if marks and now >= marks[0]:
            heaps.append(live_heap_megabytes(jvm))
            marks.pop(0)
        time.sleep(5)
    if marks:
        heaps.append(live_heap_megabytes(jvm))
    return looks, heaps


def _verdicts(looks: list[Vitals], heaps: list[float | None], *, behind: float | None, lost: int) -> dict[str, bool]:
    """The last third of the time must look like the second."""
    third = len(looks) // 3
    middle, end = looks[third : 2 * third], looks[2 * third :]

    def flat(name: str, slack: float) -> bool:
        return bool(max(getattr(look, name) for look in end) <= slack * max(getattr(look, name) for look in middle))

    known = [heap for heap in heaps if heap is not None]
    return {
        "nothing lost": lost == 0,
        "kept up": behind is not None and behind <= MOST_SECONDS_BEHIND,
        "driver's memory flat": flat("driver_megabytes", 1.05),
        "live heap flat": len(known) < 2 or known[-1] <= 1.1 * known[0] + 10,
        "state bounded": flat("state_rows", 1.1),
        "checkpoint bounded": flat("checkpoint_files", 1.1),
        "page up to date": all(look.batch - look.batch_on_page <= 30 for look in looks[third:]),
    }


def _counted(kafka: KafkaService) -> int:
    """The sum of the last count of each browser and window."""
    last: dict[str, int] = {}
    for _, value in kafka.read("statistics"):
        row = json.loads(value or b"{}")
        key = json.dumps([row["browser"], row["window"]])
        last[key] = max(last.get(key, 0), row["count"])
    return sum(last.values())


def table(figures: dict[str, Any]) -> str:
    looks = figures["looks"]
    third = len(looks) // 3

    def span(name: str, unit: str = "") -> str:
        values = [look[name] for look in looks[third:]]
        return f"{min(values):,} to {max(values):,}{unit}"

    heaps = ", ".join(f"{heap:.0f} MB" for heap in figures["live_heap_megabytes"] if heap is not None)
    rows = [
        ("minutes at this rate", f"{figures['minutes']:g}"),
        ("records a second", f"{figures['rate']:,}" + ", a tenth below the highest that kept up" * figures["highest"]),
        ("records sent, and counted once", f"{figures['sent']:,} and {figures['counted']:,}"),
        ("batches", f"{looks[-1]['batch']:,}"),
        ("behind when the generator stopped", f"{figures['seconds_behind']:.1f} s"),
        ("memory of the driver, JVM and Python, after the first third", span("driver_megabytes", " MB")),
        ("live heap at a third, two thirds and the end", heaps),
        ("rows of state after the first third", span("state_rows")),
        ("files in the checkpoint after the first third", f"{span('checkpoint_files')}, {span('checkpoint_megabytes', ' MB')}"),
        ("memory of the page's server", span("page_megabytes", " MB")),
        *((name, "yes" if verdict else "**no**") for name, verdict in figures["verdicts"].items()),
    ]  # fmt: skip
    return "\n".join(["| what | how much |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def _headwater(*words: str, **settings: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headwater", *words]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **settings)


if __name__ == "__main__":
    sys.exit(main())
