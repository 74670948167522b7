"""The local broker as a process, started and stopped with the command."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from broker_support import HEADWATER, Broker, free_port, run_here
from headwater.kafka import broker as local_broker
from headwater.kafka.broker_settings import new_cluster_id, server_properties
from headwater.kafka.options import Connection
from waiting_support import wait_until

pytestmark = pytest.mark.services


def status(data: Path) -> dict[str, object]:
    return json.loads(run_here("broker", "status", "--data", data, "--json").stdout)


def alive(pid: int) -> bool:
    """Return whether a process is running; a zombie is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_status_of_a_running_broker(broker: Broker) -> None:
    """Status shows the address, process and security protocol of a broker that answers."""
    now = status(broker.data)
    assert now["running"] is True
    assert now["ready"] is True
    assert now["bootstrap"] == broker.bootstrap
    assert (now["security_protocol"], now["client_properties"]) == ("PLAINTEXT", None)
    assert alive(int(str(now["pid"])))
    assert f"running on {broker.bootstrap}" in run_here("broker", "status", "--data", broker.data).stdout


def test_starting_twice_is_no_error(broker: Broker) -> None:
    """Starting a running broker changes nothing and reports that it is running."""
    before = status(broker.data)
    again = run_here("broker", "start", "--data", broker.data)
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert status(broker.data) == before


def test_running_broker_does_not_change_its_port(broker: Broker) -> None:
    """A different port for a running broker is refused, not ignored."""
    refused = run_here("broker", "start", "--data", broker.data, "--port", free_port())
    assert refused.returncode == 11
    assert "already running" in refused.stderr
    assert "broker stop" in refused.stderr


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="listening sockets are read from /proc")
def test_broker_is_bound_to_loopback(broker: Broker) -> None:
    """The listeners for clients and for the controller cannot be reached from other machines."""
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    of_broker = set()
    for handle in Path(f"/proc/{status(broker.data)['pid']}/fd").iterdir():
        with suppress(FileNotFoundError):
            of_broker.add(str(handle.readlink()).removeprefix("socket:[").removesuffix("]"))
    tables = [Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()]
    sockets = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = [fields[1].split(":")[0] for fields in sockets if fields[3] == "0A" and fields[9] in of_broker]
    assert len(listening) == 2
    assert set(listening) <= loopback


def test_data_survives_a_kill_until_it_is_wiped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill, the broker starts with the same cluster id, port and records. Wiping removes them.

    A cluster id that looks like a command-line option does not prevent the start.
    """
    monkeypatch.setattr(local_broker, "new_cluster_id", lambda: "-" + new_cluster_id()[1:])
    data, port = tmp_path / "kafka", free_port()
    started = run_here("broker", "start", "--port", port, "--data", data)
    assert started.returncode == 0, started.stderr
    try:
        first = status(data)
        assert str(first["cluster_id"]).startswith("-")
        there = Broker(f"127.0.0.1:{port}", data)
        there.produce("kept", "one", "two")
        os.kill(int(str(first["pid"])), signal.SIGKILL)
        wait_until(lambda: not alive(int(str(first["pid"]))), "the end of the broker")
        assert status(data) | {"pid": None} == first | {"running": False, "ready": False, "pid": None}

        assert run_here("broker", "start", "--data", data).returncode == 0
        second = status(data)
        assert (second["cluster_id"], second["port"]) == (first["cluster_id"], port)
        assert there.consume("kept", 2) == ["one", "two"]
        refused = run_here("broker", "stop", "--data", data, "--wipe")
        assert (refused.returncode, refused.stderr.partition("]")[0]) == (2, "error[not-confirmed")
        assert f"help: headwater broker stop --data {data} --wipe --yes" in refused.stderr
        assert status(data) == second, "without confirmation the broker keeps running"
    finally:
        wiped = run_here("broker", "stop", "--data", data, "--wipe", "--yes")
    assert (wiped.returncode, wiped.stdout) == (0, f"Kafka stopped (pid {second['pid']}); removed {data}\n")
    assert not alive(int(str(second["pid"])))
    assert list(tmp_path.iterdir()) == []
    assert (status(data)["port"], status(data)["cluster_id"]) == (9092, None)


def test_killed_broker_keeps_its_port_until_its_last_thread_ends() -> None:
    """A killed process counts as exiting, not as ended, while one of its threads remains."""
    last_thread = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "print('started', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", last_thread], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        wait_until(lambda: local_broker._is_exiting(process.pid), "the end of the first thread")
        process.kill()
        wait_until(lambda: not local_broker._is_exiting(process.pid), "the end of the last thread")
    assert not local_broker._is_exiting(os.getpid())


def test_port_in_use_is_named(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port in use is refused before anything starts, and the message suggests a free one."""
    monkeypatch.setattr("headwater.kafka.clients.ANSWER_SECONDS", 1.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = run_here("broker", "start", "--port", port, "--data", tmp_path)
    assert refused.returncode == 11
    assert f"port {port}" in refused.stderr
    assert "headwater broker start --port" in refused.stderr


def test_port_of_another_broker(broker: Broker, tmp_path: Path) -> None:
    """If Kafka is listening on the port, the message says so and how to use that broker."""
    refused = run_here("broker", "start", "--port", broker.bootstrap.split(":")[1], "--data", tmp_path)
    assert refused.returncode == 11
    assert f"--bootstrap {broker.bootstrap}" in refused.stderr


def test_log_tail_is_shown_when_it_fails_to_start(tmp_path: Path) -> None:
    """A broker that cannot start leaves no process, and the message shows the end of its log."""
    topics = tmp_path / "topics"
    topics.mkdir()
    (topics / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=7\n")
    failed = run_here("broker", "start", "--port", free_port(), "--data", tmp_path)
    assert failed.returncode == 11
    assert "error[broker-failed]" in failed.stderr
    assert "Stored node id 7" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert status(tmp_path)["running"] is False


def test_reused_process_id_is_not_signaled(tmp_path: Path) -> None:
    """If another program has the recorded process id, the broker counts as not running."""
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            (tmp_path / "broker.json").write_text(json.dumps({"pid": other.pid, "port": 1}))
            stopped = run_here("broker", "stop", "--data", tmp_path)
            assert stopped.returncode == 0
            assert "was not running" in stopped.stdout
            assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": "x", "port": null}'])
def test_unreadable_record_means_not_running(record: str, tmp_path: Path) -> None:
    """Status works with a record that a crash left truncated."""
    (tmp_path / "broker.json").write_text(record)
    assert local_broker.status(tmp_path).running is False


def test_stop_without_data_creates_no_folder(tmp_path: Path) -> None:
    """Stopping a broker that was never started reports so and creates no files."""
    stopped = run_here("broker", "stop", "--data", tmp_path / "never")
    assert stopped.returncode == 0
    assert "was not running" in stopped.stdout
    assert not (tmp_path / "never").exists()


def test_data_folder_that_cannot_be_created(tmp_path: Path) -> None:
    """A data folder below a file is refused with an error that names it."""
    (tmp_path / "file").touch()
    refused = run_here("broker", "start", "--data", tmp_path / "file" / "kafka")
    assert refused.returncode == 11
    assert "data-unwritable" in refused.stderr


def test_default_connection_is_the_local_broker(broker: Broker, tmp_path: Path) -> None:
    """Without a running local broker the default is Kafka's usual address."""
    assert local_broker.default_connection(broker.data) == Connection(broker.bootstrap)
    assert local_broker.default_connection(tmp_path) == Connection("127.0.0.1:9092")


def test_settings_use_loopback_and_unlimited_retention() -> None:
    """Every listener is on loopback, and records never expire."""
    settings = dict(line.split("=", 1) for line in server_properties(port=1, controller_port=2).splitlines())
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert settings["log.retention.ms"] == "-1"
    assert len({new_cluster_id() for _ in range(10)}) == 10


def test_wipe_of_a_stopped_broker(tmp_path: Path) -> None:
    """The data of a broker that is not running can be removed; a folder that does not exist is no error."""
    for name in ("topics", "logs", "tls"):
        (tmp_path / "kafka" / name).mkdir(parents=True)
    for name in ("client.properties", "broker.json", "lock", "topics/meta.properties"):
        (tmp_path / "kafka" / name).touch()
    (tmp_path / "kafka" / "server.properties").write_text(server_properties(port=1, controller_port=2))
    for expected in ("Kafka was not running; removed", "Kafka was not running, and there is no data in"):
        wiped = run_here("broker", "stop", "--data", tmp_path / "kafka", "--wipe", "--yes")
        assert (wiped.returncode, wiped.stdout) == (0, f"{expected} {tmp_path / 'kafka'}\n")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"server.properties": server_properties(port=1, controller_port=2), "thesis.odt": "", "topics": ""},
            "also contains files that are not the broker's",
        ),
        ({"server.properties": "log.dirs=topics\n"}, "is not the data folder of a Headwater broker"),
        ({"topics": "", "logs": ""}, "is not the data folder of a Headwater broker"),
        ({}, "is not the data folder of a Headwater broker"),
    ],
)
def test_wipe_of_another_folder(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    """A folder that is not a broker's, or contains other files as well, is not removed."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    refused = run_here("broker", "stop", "--data", tmp_path, "--wipe", "--yes")
    assert (refused.returncode, refused.stderr.partition("]")[0]) == (11, "error[not-broker-data")
    assert problem in refused.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(files)


def test_wipe_asks_on_a_terminal(tmp_path: Path) -> None:
    """On a terminal, anything but yes keeps the data."""
    data = tmp_path / "kafka"
    data.mkdir()
    (data / "server.properties").write_text(server_properties(port=1, controller_port=2))
    for answer, kept in (("no", True), ("yes", False)):
        terminal, command_side = pty.openpty()
        with subprocess.Popen(
            [HEADWATER, "broker", "stop", "--data", data, "--wipe"],
            stdin=command_side, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as command:  # fmt: skip
            os.close(command_side)
            os.write(terminal, f"{answer}\n".encode())
            shown, _ = command.communicate(timeout=240)
            os.close(terminal)
        assert command.returncode == 0, shown
        assert "This cannot be undone. Type yes to continue" in shown
        assert data.exists() == kept


def test_start_while_the_folder_is_wiped(tmp_path: Path) -> None:
    """A process that waits for the lock of a folder that is removed in the meantime locks the new folder."""
    data = tmp_path / "kafka"
    data.mkdir()
    with local_broker.locked(data):
        waiting = subprocess.Popen(
            [sys.executable, "-c", WAITING, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waiting\n"
        data.rename(tmp_path / "removed")
    shown, _ = waiting.communicate("", timeout=240)
    assert (waiting.returncode, shown) == (0, "locked\n")
    assert (data / "lock").exists()


WAITING = """
import sys
from pathlib import Path
from headwater.kafka import broker
opened = Path.open
def open_and_tell(self, *arguments):
    stream = opened(self, *arguments)
    if not told:
        told.append(self)
        print("waiting", flush=True)
    return stream
told = []
Path.open = open_and_tell
with broker.locked(Path(sys.argv[1])):
    print("locked", flush=True)
"""
