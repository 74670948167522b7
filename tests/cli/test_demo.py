"""``headwater demo``, started and stopped as a user would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker_support import HEADWATER, free_port, headwater, run_here
from waiting_support import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.services


@contextmanager
def demo(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [HEADWATER, "demo", "--port", str(port)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()


def pids(folder: Path) -> dict[str, int]:
    """Return the processes that a demo has recorded."""
    found = {}
    for record in (folder / ".headwater/demo/processes").glob("*.json"):
        found[record.stem] = int(json.loads(record.read_text())["pid"])
    with suppress(OSError, ValueError):
        broker = json.loads((folder / ".headwater/demo/kafka/broker.json").read_text())["pid"]
        found |= {"broker": int(broker)} if broker else {}
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_running(folder: Path) -> list[str]:
    """Return the command line of each process that was started in the demo's folder or names it."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError):
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if is_alive(int(place.name)) and (str(folder) in line or (place / "cwd").readlink() == folder):
                    found.append(line)
    return found


def test_demo_starts_stops_and_cleans_up_after_one_that_was_killed(tmp_path: Path) -> None:
    """A demo stops the processes that a killed demo left behind, and starts clean; Ctrl-C leaves nothing behind."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("requires /proc, to find processes that were left behind")
    port = free_port()
    with demo(tmp_path, port) as killed:

        def all_started() -> bool:
            assert killed.poll() is None, killed.communicate()
            return pids(tmp_path).keys() >= {"generator", "job", "page", "broker"}

        wait_until(all_started, "the start of all processes")
        left = pids(tmp_path)
        killed.kill()
    assert all(is_alive(pid) for pid in left.values())
    (tmp_path / ".headwater/demo/mark").write_text("from the first demo")

    with demo(tmp_path, port) as second:
        assert second.stderr is not None and second.stdout is not None
        assert "stopped processes of an earlier demo" in second.stderr.readline()
        assert not any(is_alive(pid) for pid in left.values())
        text = "".join(second.stdout.readline() for _ in range(5))
        assert "browser-stats-stateful is running" in text
        assert "headwater rewind .headwater/demo/browser-stats" in text
        assert not (tmp_path / ".headwater/demo/mark").exists()

        url = next(word for word in text.split() if word.startswith("http://127.0.0.1:"))
        with urllib.request.urlopen(url, timeout=60) as page:
            assert page.status == 200
        log = run_here("log", ".headwater/demo/browser-stats", "--json", cwd=tmp_path)
        assert json.loads(log.stdout.splitlines()[0])["status"] == "committed"

        def first_row() -> str:
            return run_here("state", ".headwater/demo/browser-stats", "--json", cwd=tmp_path).stdout.partition("\n")[0]

        assert "browser" in json.loads(wait_until(first_row, "a batch with visits"))["key"]
        another = headwater("demo", cwd=tmp_path)
        assert another.returncode == 11 and "a demo is already running" in another.stderr

        os.kill(second.pid, signal.SIGINT)
        _, errors = second.communicate(timeout=PATIENCE_SECONDS)
        assert second.returncode == 0, errors
        assert "nothing is left running" in errors
    assert left_running(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_lakehouse_demo_corrects_both_tables(tmp_path: Path) -> None:
    """After the bad deployment, the rewind and the re-run, both tables have what the landed files have."""
    from deltalake import DeltaTable

    done = headwater("demo", "--lakehouse", cwd=tmp_path, timeout=800)
    assert done.returncode == 0, done.stderr
    home = tmp_path / ".headwater/demo"
    sales = [json.loads(line) for file in (home / "landing").glob("*.json") for line in file.read_text().splitlines()]
    assert len(sales) == 8
    bronze = DeltaTable(home / "lake/bronze").to_pyarrow_table().to_pylist()
    assert sorted((row["store"], row["amount"]) for row in bronze) == sorted((s["store"], s["amount"]) for s in sales)
    totals = DeltaTable(home / "lake/totals").to_pyarrow_table().to_pylist()
    assert sum(row["sales"] for row in totals) == sum(sale["amount"] for sale in sales)
    assert sum(row["receipts"] for row in totals) == len(sales)

    before, wrong, rewound, corrected = (
        _shown_totals(part) for part in done.stdout.split("\n\n") if "receipts" in part
    )
    assert rewound == before
    assert wrong["10:30", "north"] == "80000" and corrected["10:30", "north"] == "800"
    assert "retail-sales-bronze --source" in done.stdout and "rewind .headwater/demo/checkpoints/totals" in done.stdout
    for command in ("log", "fsck"):
        assert run_here(command, ".headwater/demo/checkpoints/totals", cwd=tmp_path).returncode == 0


def _shown_totals(text: str) -> dict[tuple[str, str], str]:
    """Return the sales of each window and store in a table that the demo printed."""
    lines = text[text.index("receipts") :].splitlines()[1:]
    return {(row[0], row[1]): row[2].replace(",", "") for row in map(str.split, lines) if len(row) == 4}
