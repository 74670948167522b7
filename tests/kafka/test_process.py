"""The local broker as a process, through the command that users have."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from broker_support import Broker, free_port, headwater
from headwater.kafka import broker as local_broker
from headwater.kafka.broker_settings import new_cluster_id, server_properties


def status(data: Path) -> dict[str, object]:
    return json.loads(headwater("broker", "status", "--data", data, "--json").stdout)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_running_broker_tells_where_it_is(broker: Broker) -> None:
    """Status shows address, process and cluster of a broker that answers."""
    now = status(broker.data)
    assert now["running"] is True
    assert now["ready"] is True
    assert now["bootstrap"] == broker.bootstrap
    assert alive(int(str(now["pid"])))
    assert f"running on {broker.bootstrap}" in headwater("broker", "status", "--data", broker.data).stdout


def test_starting_twice_is_no_error(broker: Broker) -> None:
    """A broker that runs already is left alone, and said to run."""
    before = status(broker.data)
    again = headwater("broker", "start", "--data", broker.data)
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert status(broker.data) == before


def test_running_broker_does_not_change_its_port(broker: Broker) -> None:
    """Another port for a broker that runs is refused, not ignored."""
    refused = headwater("broker", "start", "--data", broker.data, "--port", free_port())
    assert refused.returncode == 11
    assert "already runs" in refused.stderr
    assert "broker stop" in refused.stderr


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="listening sockets are read from /proc")
def test_broker_is_bound_to_loopback(broker: Broker) -> None:
    """Its two listeners, for clients and for the controller, are closed to other machines."""
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    ours = set()
    for handle in Path(f"/proc/{status(broker.data)['pid']}/fd").iterdir():
        with suppress(FileNotFoundError):
            ours.add(str(handle.readlink()).removeprefix("socket:[").removesuffix("]"))
    tables = [Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()]
    sockets = [line.split() for table in tables for line in table.splitlines()[1:]]
    listening = [fields[1].split(":")[0] for fields in sockets if fields[3] == "0A" and fields[9] in ours]
    assert len(listening) == 2
    assert set(listening) <= loopback


def test_data_are_kept_over_stop_and_start(tmp_path: Path) -> None:
    """After a stop and a start the broker has the same cluster id, port and records, and no process is left after."""
    data, port = tmp_path / "kafka", free_port()
    started = headwater("broker", "start", "--port", port, "--data", data)
    assert started.returncode == 0, started.stderr
    try:
        first = status(data)
        there = Broker(f"127.0.0.1:{port}", data)
        there.produce("kept", "one", "two")
        stopped = headwater("broker", "stop", "--data", data)
        assert stopped.returncode == 0
        assert not alive(int(str(first["pid"])))
        assert status(data) | {"pid": None} == first | {"running": False, "ready": False, "pid": None}

        assert headwater("broker", "start", "--data", data).returncode == 0
        second = status(data)
        assert (second["cluster_id"], second["port"]) == (first["cluster_id"], port)
        assert there.consume("kept", 2) == ["one", "two"]

        os.kill(int(str(second["pid"])), signal.SIGKILL)
        assert headwater("broker", "start", "--data", data).returncode == 0
        assert there.consume("kept", 2) == ["one", "two"]
    finally:
        last = status(data)["pid"]
        headwater("broker", "stop", "--data", data)
    assert not alive(int(str(last)))


def test_port_in_use_is_named(broker: Broker, tmp_path: Path) -> None:
    """A port that somebody listens on is refused before anything starts, with a free one to use instead."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = headwater("broker", "start", "--port", port, "--data", tmp_path)
    assert refused.returncode == 11
    assert f"port {port}" in refused.stderr
    assert "headwater broker start --port" in refused.stderr


def test_port_of_another_broker_is_told(broker: Broker, tmp_path: Path) -> None:
    """When it is Kafka that has the port, the message says so and how to use it."""
    refused = headwater("broker", "start", "--port", broker.bootstrap.split(":")[1], "--data", tmp_path)
    assert refused.returncode == 11
    assert f"--bootstrap {broker.bootstrap}" in refused.stderr


def test_log_tail_is_shown_when_it_fails_to_start(tmp_path: Path) -> None:
    """A broker that cannot start leaves no process, and its own last words are in the message."""
    topics = tmp_path / "topics"
    topics.mkdir()
    (topics / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=7\n")
    failed = headwater("broker", "start", "--port", free_port(), "--data", tmp_path)
    assert failed.returncode == 11
    assert "error[broker-failed]" in failed.stderr
    assert "Stored node id 7" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert status(tmp_path)["running"] is False


def test_stranger_with_the_same_process_id_is_not_signalled(tmp_path: Path) -> None:
    """A process id that now belongs to somebody else counts as not running."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            (tmp_path / "broker.json").write_text(json.dumps({"pid": stranger.pid, "port": 1}))
            stopped = headwater("broker", "stop", "--data", tmp_path)
            assert stopped.returncode == 0
            assert "was not running" in stopped.stdout
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": "x", "port": null}'])
def test_torn_record_means_not_running(record: str, tmp_path: Path) -> None:
    """A record that a crash left unreadable does not stop status from answering."""
    (tmp_path / "broker.json").write_text(record)
    assert local_broker.status(tmp_path).running is False


def test_stop_without_data_makes_no_folder(tmp_path: Path) -> None:
    """Stopping a broker that never was says so and leaves the disk alone."""
    stopped = headwater("broker", "stop", "--data", tmp_path / "never")
    assert stopped.returncode == 0
    assert "was not running" in stopped.stdout
    assert not (tmp_path / "never").exists()


def test_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A data folder under a file is refused with its name."""
    (tmp_path / "file").touch()
    refused = headwater("broker", "start", "--data", tmp_path / "file" / "kafka")
    assert refused.returncode == 11
    assert "data-unwritable" in refused.stderr


def test_default_bootstrap_is_the_local_broker(broker: Broker, tmp_path: Path) -> None:
    """Without a running local broker it is Kafka's usual address."""
    assert local_broker.default_bootstrap(broker.data) == broker.bootstrap
    assert local_broker.default_bootstrap(tmp_path) == "127.0.0.1:9092"


def test_settings_keep_everything_on_loopback_and_forever() -> None:
    """Each address in the settings is loopback, and nothing is ever expired."""
    settings = dict(line.split("=", 1) for line in server_properties(port=1, controller_port=2).splitlines())
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2"
    assert settings["log.retention.ms"] == "-1"
    assert len({new_cluster_id() for _ in range(10)}) == 10


def test_cluster_id_may_begin_with_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One random id in 64 looks like an option; the folder is prepared all the same."""
    monkeypatch.setattr(local_broker, "new_cluster_id", lambda: "-" + new_cluster_id()[1:])
    try:
        assert str(local_broker.start(tmp_path, port=free_port()).cluster_id).startswith("-")
    finally:
        local_broker.stop(tmp_path)
