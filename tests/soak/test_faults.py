"""Faults around a job: each is reported clearly, loses nothing, and the job resumes once it is over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_support import Broker, free_port, headwater
from cli.commands import Running, assert_no_stack_trace, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="skipped: only root can mount")
COUNTS = ["order-status", "--mode", "update"]


def put_orders(folder: Path, number: int, count: int = 50) -> list[str]:
    """Write a file of orders and return their statuses."""
    folder.mkdir(exist_ok=True)
    rows = [{"order_id": number * 1000 + nth, "order_status": f"S{nth % 7}"} for nth in range(count)]
    draft = folder.with_name(f"{number}.draft")
    draft.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(draft, (1_700_000_000 + number,) * 2)
    draft.rename(folder / f"{number:04d}.json")
    return [str(row["order_status"]) for row in rows]


def counts_in_state(checkpoint: object) -> dict[str, int]:
    result = headwater("state", checkpoint, "--json")
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return {row["key"]["order_status"]: row["value"]["count"] for row in rows}


def count_by_status(statuses: list[str]) -> dict[str, int]:
    return {status: statuses.count(status) for status in sorted(set(statuses))}


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Callable[..., None]]:
    """Mount a folder for the length of the block; yield a function that remounts it with other options."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, folder], check=True)
    try:
        yield lambda *more: subprocess.run(["mount", "-o", *more, folder], check=True)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@as_root
def test_full_disk(tmp_path: Path) -> None:
    """A full disk ends the job with a clear message; with free space, the job resumes with exact results."""
    statuses = [status for number in range(20) for status in put_orders(tmp_path / "in", number)]
    place = tmp_path / "disk"
    with mounted(place, "-t", "tmpfs", "-o", "size=200k", "tmpfs") as remount:
        arguments = [*COUNTS, "--source", f"files:{tmp_path}/in?maxFilesPerTrigger=1", "--sink", "console:"]
        arguments += ["--checkpoint", str(place / "checkpoint"), "--trigger", "available-now"]
        full = headwater("run", *arguments, cwd=tmp_path, timeout=1200)
        assert full.returncode != 0
        assert_no_stack_trace(full.stderr)
        assert "No space left on device" in full.stderr or "disk is full" in full.stderr, full.stderr
        remount("remount,size=200m")
        found = headwater("fsck", place / "checkpoint", "--json")
        assert found.returncode == 0, found.stdout
        ran = headwater("run", *arguments, cwd=tmp_path, timeout=1200)
        assert ran.returncode == 0, ran.stderr
        assert counts_in_state(place / "checkpoint") == count_by_status(statuses)
        assert headwater("fsck", place / "checkpoint").returncode == 0


@as_root
def test_a_rewind_on_a_full_disk(tmp_path: Path) -> None:
    """A rewind on a full disk reports it, and can be resolved once there is free space."""
    put_orders(tmp_path / "in", 0)
    place = tmp_path / "disk"
    with mounted(place, "-t", "tmpfs", "-o", "size=20m", "tmpfs"):
        arguments = [*COUNTS, "--source", f"files:{tmp_path}/in", "--sink", "console:"]
        arguments += ["--checkpoint", str(place / "checkpoint"), "--trigger", "available-now"]
        for number in range(1, 3):
            assert headwater("run", *arguments, cwd=tmp_path, timeout=1200).returncode == 0
            put_orders(tmp_path / "in", number)
        before = counts_in_state(place / "checkpoint")
        with (place / "ballast").open("wb", buffering=0) as ballast:
            while True:
                try:
                    ballast.write(bytes(4096))
                except OSError:
                    break
        full = headwater("rewind", place / "checkpoint", "--to", "0", "--yes")
        assert full.returncode not in (0, 17), full.stderr
        assert_no_stack_trace(full.stderr)
        assert "No space left" in full.stderr
        (place / "ballast").unlink()
        headwater("fsck", place / "checkpoint", "--repair", "--yes")
        assert headwater("fsck", place / "checkpoint").returncode == 0
        headwater("undo", place / "checkpoint", "--yes")
        assert counts_in_state(place / "checkpoint") == before


@as_root
def test_read_only_checkpoint(tmp_path: Path) -> None:
    """Every read works on a read-only checkpoint; a run and a rewind fail and name the reason."""
    statuses = put_orders(tmp_path / "in", 0)
    checkpoint = tmp_path / "checkpoint"
    arguments = [*COUNTS, "--source", f"files:{tmp_path}/in", "--sink", "console:"]
    arguments += ["--checkpoint", str(checkpoint), "--trigger", "available-now"]
    assert headwater("run", *arguments, cwd=tmp_path, timeout=1200).returncode == 0
    put_orders(tmp_path / "in", 1)
    with mounted(checkpoint, "--bind", str(checkpoint)) as remount:
        remount("remount,ro,bind")
        for read in (["log"], ["show", "0"], ["state"], ["fsck"], ["history", "--key", "order_status=S1"], ["late"]):
            result = headwater(read[0], checkpoint, *read[1:], cwd=tmp_path)
            assert result.returncode == 0, (read, result.stderr)
        for change in (["run", *arguments], ["rewind", str(checkpoint), "--redo", "0", "--yes"]):
            result = headwater(*change, cwd=tmp_path, timeout=1200)
            assert result.returncode not in (0, 1, 17), result.stderr
            assert_no_stack_trace(result.stderr)
            assert "read-only" in result.stderr.lower(), result.stderr
    assert counts_in_state(checkpoint) == count_by_status(statuses)
    assert headwater("run", *arguments, cwd=tmp_path, timeout=1200).returncode == 0


def wait_for_batch(job: Running, number: int) -> None:
    job.wait_for(f"batch {number} ")


def test_a_broker_outage_of_a_minute(tmp_path: Path) -> None:
    """A job survives a broker outage of a minute or ends with a clear message, and no record is lost or duplicated."""
    data, port = tmp_path / "kafka", free_port()
    assert headwater("broker", "start", "--port", port, "--data", data, timeout=1200).returncode == 0
    broker = Broker(f"127.0.0.1:{port}", data)
    try:
        headwater("topics", "create", "orders", "--bootstrap", broker.bootstrap)
        source = f"kafka://{broker.bootstrap}/orders"
        arguments = [*COUNTS, "--source", source, "--sink", "console:", "--checkpoint", str(tmp_path / "checkpoint")]
        statuses = send_orders(broker, 0)
        with running(tmp_path, "run", *arguments) as job:
            wait_for_batch(job, 0)
            pid = json.loads((data / "broker.json").read_text())["pid"]
            os.kill(pid, signal.SIGKILL)
            time.sleep(60)
            assert headwater("broker", "start", "--port", port, "--data", data, timeout=1200).returncode == 0
            statuses += send_orders(broker, 1)
            deadline = time.monotonic() + 120
            while counts_in_state(tmp_path / "checkpoint") != count_by_status(statuses) and time.monotonic() < deadline:
                time.sleep(1)
            job.signal_group(signal.SIGTERM)
            status = job.end()
            assert_no_stack_trace(job.errors)
            assert status in (0, 16), job.errors
        statuses += send_orders(broker, 2)
        ran = headwater("run", *arguments, "--trigger", "available-now", cwd=tmp_path, timeout=1200)
        assert ran.returncode == 0, ran.stderr
        assert counts_in_state(tmp_path / "checkpoint") == count_by_status(statuses)
    finally:
        headwater("broker", "stop", "--data", data)


def send_orders(broker: Broker, number: int) -> list[str]:
    rows = [{"order_id": number * 1000 + nth, "order_status": f"S{nth % 7}"} for nth in range(50)]
    broker.produce("orders", *map(json.dumps, rows))
    return [str(row["order_status"]) for row in rows]


@pytest.mark.skipif(
    shutil.which("faketime") is None, reason="skipped: faketime is not installed (Debian: apt-get install faketime)"
)
def test_the_clock_steps_back(tmp_path: Path) -> None:
    """A driver whose clock is an hour behind its last run resumes; the log, fsck and a rewind agree."""
    statuses = put_orders(tmp_path / "in", 0)
    checkpoint = tmp_path / "checkpoint"
    arguments = [*COUNTS, "--source", f"files:{tmp_path}/in", "--sink", "console:"]
    arguments += ["--checkpoint", str(checkpoint), "--trigger", "available-now"]
    assert headwater("run", *arguments, cwd=tmp_path, timeout=1200).returncode == 0
    statuses += put_orders(tmp_path / "in", 1)
    behind = ["faketime", "-f", "-1h", sys.executable, "-m", "headwater", "run", *arguments]
    ran = subprocess.run(behind, cwd=tmp_path, capture_output=True, text=True, timeout=1200, check=False)
    assert ran.returncode == 0, ran.stderr
    planned = [json.loads(line)["planned_at"] for line in headwater("log", checkpoint, "--json").stdout.splitlines()]
    assert planned[1] < planned[0], "the second batch was planned an hour before the first"
    assert counts_in_state(checkpoint) == count_by_status(statuses)
    assert headwater("fsck", checkpoint).returncode == 0
    assert headwater("rewind", checkpoint, "--to", "0", "--yes").returncode == 0
    assert headwater("run", *arguments, cwd=tmp_path, timeout=1200).returncode == 0
    assert counts_in_state(checkpoint) == count_by_status(statuses)
