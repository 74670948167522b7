"""Alerts fire once and resolve once, and reach a real HTTP server and a real command."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.receiver import Receiver
from headwater.alerts import delivery
from headwater.alerts.delivery import GIVE_UP_MS, NotDelivered, deliver
from headwater.alerts.rules import AlertConfig, Command, Rule, Webhook, load_config
from headwater.alerts.state import NO_ALERTS, STATE_FILE, Notification, Outgoing, parse_state
from headwater.alerts.watching import AlertThread, PageAlerts, StreamAlerts
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.object_tree import ObjectTree
from headwater.checkpoint.record import PROGRESS_FILE, ProgressRecord
from headwater.core.errors import ServiceUnreachable
from waiting_support import wait_until

MINUTE = 60_000
NOW = 1_700_000_000_000
BEHIND = Rule("behind", "watermark-behind", 30 * MINUTE, severity="critical")


class Stream:
    """A checkpoint on disk whose watermark a test moves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for folder in ("offsets", "commits", "_headwater"):
            (path / folder).mkdir(parents=True)
        (path / "_headwater/job.json").write_text('{"job": "visits"}')

    def watermark(self, at_ms: int) -> None:
        (self.path / "offsets/0").write_text(
            f'v1\n{{"batchWatermarkMs":{at_ms},"batchTimestampMs":{at_ms},"conf":{{}}}}\n0'
        )

    def alerts(self, *rules: Rule, targets: tuple[Webhook | Command, ...] = (), **options: object) -> StreamAlerts:
        return StreamAlerts(LocalTree(self.path), AlertConfig(rules or (BEHIND,), targets), **options)  # type: ignore[arg-type]


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path / "checkpoint")


def test_fires_once_and_resolves_once(stream: Stream, receiver: Receiver) -> None:
    """However often the rule is evaluated, the webhook receives one alert when it fires and one when it resolves."""
    alerts = stream.alerts(targets=(Webhook(f"{receiver.url}/hook", headers={"X-Key": "k"}),))
    stream.watermark(NOW - 40 * MINUTE)
    for second in range(5):
        alerts.step(NOW + second * 1000)
    stream.watermark(NOW)
    for second in range(5, 10):
        alerts.step(NOW + second * 1000)
    fired, resolved = (json.loads(body) for body in receiver.bodies)
    path, headers, _ = receiver.requests[0]
    assert (path, headers["Content-Type"], headers["X-Key"]) == ("/hook", "application/json", "k")
    assert fired == {
        "status": "firing",
        "rule": "behind",
        "when": "watermark-behind",
        "severity": "critical",
        "job": "visits",
        "checkpoint": str(stream.path),
        "summary": "the watermark lags 40 min (limit 30 min)",
        "value": 40 * MINUTE,
        "batch_id": None,
        "started_at": "2023-11-14T22:13:20.000Z",
        "resolved_at": None,
        "text": "[CRITICAL] visits: behind: the watermark lags 40 min (limit 30 min)",
    }
    assert (resolved["status"], resolved["started_at"]) == ("resolved", fired["started_at"])
    assert resolved["resolved_at"] == "2023-11-14T22:13:25.000Z"
    assert resolved["text"].startswith("[RESOLVED] visits: behind: ")


def test_fires_once_across_restarts(stream: Stream, receiver: Receiver) -> None:
    """Another process that takes over does not repeat an alert that is firing, and resolves it."""
    target = Webhook(receiver.url)
    stream.watermark(NOW - 40 * MINUTE)
    assert len(stream.alerts(targets=(target,), owner="first").step(NOW)) == 1
    second = stream.alerts(targets=(target,), owner="second")
    assert second.step(NOW + 10 * MINUTE) == []
    stream.watermark(NOW + 10 * MINUTE)
    assert [sent.status for sent in second.step(NOW + 11 * MINUTE)] == ["resolved"]
    assert len(receiver.requests) == 2


def test_one_process_evaluates_at_a_time(stream: Stream) -> None:
    """While one process evaluates the rules, another waits; it takes over when the first has been silent."""
    first, second = stream.alerts(owner="first"), stream.alerts(owner="second")
    stream.watermark(NOW)
    assert first.step(NOW) == []
    stream.watermark(NOW - 40 * MINUTE)
    assert second.step(NOW + 20_000) == []
    assert parse_state((stream.path / STATE_FILE).read_bytes()).owner == "first"
    assert [sent.status for sent in second.step(NOW + 100_000)] == ["firing"]


def test_a_process_that_ends(stream: Stream) -> None:
    """A process that ends leaves the rules to the next one at once, with what it knew."""
    first = stream.alerts(owner="first")
    stream.watermark(1)
    first.close()
    assert len(parse_state((stream.path / STATE_FILE).read_bytes()).firing) == 1
    second = stream.alerts(owner="second")
    assert second.step() == []
    stream.watermark(time.time_ns() // 1_000_000)
    assert [sent.status for sent in second.step()] == ["resolved"]


def test_condition_has_to_hold(stream: Stream) -> None:
    """With ``for``, an alert fires only if its condition held all the time; an unknown condition changes nothing."""
    alerts = stream.alerts(Rule("behind", "watermark-behind", 30 * MINUTE, for_ms=5 * MINUTE))
    stream.watermark(NOW - 40 * MINUTE)
    assert alerts.step(NOW) == []
    stream.watermark(NOW)
    assert alerts.step(NOW + MINUTE) == []
    stream.watermark(NOW - 40 * MINUTE)
    assert alerts.step(NOW + 2 * MINUTE) == []
    stream.watermark(0)
    assert alerts.step(NOW + 4 * MINUTE) == []
    stream.watermark(NOW - 40 * MINUTE)
    assert [sent.started_at_ms for sent in alerts.step(NOW + 7 * MINUTE)] == [NOW + 2 * MINUTE]


def test_condition_while_nobody_evaluated(stream: Stream) -> None:
    """The time in which no process evaluated the rules does not count for ``for``; a short restart does."""
    rule = Rule("behind", "watermark-behind", 30 * MINUTE, for_ms=5 * MINUTE)
    stream.watermark(NOW - 40 * MINUTE)
    assert stream.alerts(rule, owner="first").step(NOW) == []
    assert stream.alerts(rule, owner="first").step(NOW + MINUTE) == []
    later = stream.alerts(rule, owner="first")
    assert later.step(NOW + 60 * MINUTE) == []
    assert later.step(NOW + 64 * MINUTE) == []
    assert [sent.started_at_ms for sent in later.step(NOW + 65 * MINUTE)] == [NOW + 60 * MINUTE]


def test_a_rule_that_was_removed(stream: Stream) -> None:
    """An alert whose rule is no longer in the file resolves."""
    stream.watermark(NOW - 40 * MINUTE)
    stream.alerts(owner="me").step(NOW)
    others = stream.alerts(Rule("other", "batches-failing", 1), owner="me")
    assert [(sent.status, sent.summary) for sent in others.step(NOW)] == [("resolved", "the rule was removed")]


def test_a_webhook_that_fails(stream: Stream, receiver: Receiver) -> None:
    """What is not accepted is sent again after a pause, in order, also by the next process; other targets do not wait."""
    warnings: list[str] = []
    good = Webhook(f"{receiver.url}/good")
    bad = Webhook(f"{receiver.url}/bad")
    alerts = stream.alerts(targets=(bad, good), warn=warnings.append, owner="first")
    stream.watermark(NOW - 40 * MINUTE)
    receiver.statuses[:] = [500]
    alerts.step(NOW)
    assert [path for path, _, _ in receiver.requests] == ["/bad", "/good"]
    assert warnings == [f"warning: an alert is not delivered: {bad.name} answered with status 500"]
    stream.watermark(NOW)
    alerts.step(NOW + 1000)
    assert [path for path, _, _ in receiver.requests[2:]] == ["/good"]
    stream.alerts(targets=(bad, good), owner="second").step(NOW + 20 * MINUTE)
    late = [(path, json.loads(body)["status"]) for path, _, body in receiver.requests[3:]]
    assert late == [("/bad", "firing"), ("/bad", "resolved")]
    assert parse_state((stream.path / STATE_FILE).read_bytes()).outbox == ()


def test_a_webhook_that_is_gone(stream: Stream) -> None:
    """After a day, an alert that no target accepted is given up."""
    alerts = stream.alerts(targets=(Webhook("http://127.0.0.1:1/"),))
    stream.watermark(NOW - 40 * MINUTE)
    alerts.step(NOW)
    alerts.step(NOW + GIVE_UP_MS + 1)
    assert parse_state((stream.path / STATE_FILE).read_bytes()).outbox == ()


def test_a_condition_that_has_to_hold_for_more_than_a_day(stream: Stream) -> None:
    """The day in which a notification is sent again begins when it is queued, not when its condition began."""
    rule = Rule("behind", "watermark-behind", 30 * MINUTE, for_ms=25 * 60 * MINUTE)
    alerts = stream.alerts(rule, targets=(Webhook("http://127.0.0.1:1/"),))
    stream.watermark(NOW - 40 * MINUTE)
    alerts.step(NOW)
    alerts.step(NOW + 25 * 60 * MINUTE)
    (queued,) = parse_state((stream.path / STATE_FILE).read_bytes()).outbox
    assert (queued.queued_ms, queued.attempts) == (NOW + 25 * 60 * MINUTE, 1)


def test_outbox_of_an_earlier_version(stream: Stream) -> None:
    """A notification that was recorded without the time at which it was queued is kept."""
    queued = Outgoing(ALERT, ("webhook a 1",), NOW + 1)
    state = json.loads(replace(NO_ALERTS, outbox=(queued,)).to_bytes())
    assert parse_state(json.dumps(state).encode()).outbox == (queued,)
    del state["outbox"][0]["queued_ms"]
    assert parse_state(json.dumps(state).encode()).outbox == (replace(queued, queued_ms=NOW),)


ALERT = Notification("firing", "behind", "watermark-behind", "warning", "visits", "/c", "it lags", 1.0, 4, NOW)


def test_slack(receiver: Receiver) -> None:
    """Chat servers receive a text only."""
    deliver(Webhook(receiver.url, slack=True), ALERT)
    assert json.loads(receiver.bodies[0]) == {"text": "[WARNING] visits: behind: it lags"}


def test_command(tmp_path: Path) -> None:
    """A command receives the alert as JSON, and its main facts in the environment."""
    out = tmp_path / "out.json"
    program = "import json,os,sys; json.dump([json.load(sys.stdin), os.environ['HEADWATER_ALERT_JOB']], open(sys.argv[1],'w'))"
    deliver(Command((sys.executable, "-c", program, str(out))), ALERT)
    assert json.loads(out.read_text()) == [ALERT.as_dict(), "visits"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (Command((sys.executable, "-c", "import sys; sys.exit('no pager')")), "ended with status 1: no pager"),
        (Command(("no-such-program-here",)), "cannot be run"),
        (Webhook("http://127.0.0.1:1/s3cret"), "webhook 127.0.0.1:1 cannot be reached"),
    ],
)
def test_not_delivered(target: Webhook | Command, reason: str) -> None:
    """A failed delivery states the reason, without the secret part of a URL."""
    with pytest.raises(NotDelivered) as failed:
        deliver(target, ALERT)
    assert reason in str(failed.value)
    assert "s3cret" not in str(failed.value)


@pytest.fixture
def mail_server() -> Iterator[str]:
    """The address of a server that answers, but not with HTTP."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 mail.example ESMTP\r\n")
            self.rfile.readline()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_server_that_does_not_speak_http(mail_server: str) -> None:
    """An answer that is not HTTP, and a URL that cannot be requested, are failed deliveries like any other."""
    with pytest.raises(NotDelivered, match=f"webhook {mail_server} did not answer with HTTP"):
        deliver(Webhook(f"http://{mail_server}/s3cret"), ALERT)
    for url in ("http://127.0.0.1:1/my s3cret", "http://127.0.0.1:abc/s3cret", "http://127.0.0.1:1/s3cret\u00e9"):
        with pytest.raises(NotDelivered, match="cannot be reached") as failed:
            deliver(Webhook(url), ALERT)
        assert "s3cret" not in str(failed.value)
    with pytest.raises(NotDelivered, match="a header is not valid") as failed:
        deliver(Webhook("http://127.0.0.1:1/", headers={"X-Key": "s3cret\n"}), ALERT)
    assert "s3cret" not in str(failed.value)


def test_an_unexpected_error_ends_no_alerts(
    stream: Stream, tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that cannot be evaluated is reported once and tried again; the others are evaluated anyway."""
    warnings: list[str] = []
    other = Stream(tmp_path / "other")
    other.watermark(1)
    stream.watermark(1)
    failing = stream.alerts(targets=(Webhook(f"{receiver.url}/late"),), warn=warnings.append)
    attempts: list[int] = []

    def fail(now_ms: int) -> None:
        attempts.append(now_ms)
        if len(attempts) > 3:
            monkeypatch.undo()
        raise TypeError("unsupported operand")

    monkeypatch.setattr(failing._reader, "read", fail)
    with AlertThread(lambda: [failing, other.alerts(targets=(Webhook(receiver.url),))], every_ms=20):
        wait_until(lambda: {"/", "/late"} <= {path for path, _, _ in receiver.requests}, "the alerts of both streams")
    assert len(attempts) > 3
    assert [text.partition(" (")[0] for text in warnings] == [
        "warning: alerts cannot be evaluated: internal error: TypeError"
    ]


def test_an_unexpected_error_of_one_target(stream: Stream, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets that have accepted an alert do not receive it again because another one fails in an unexpected way."""
    warnings: list[str] = []
    good, bad = Webhook(f"{receiver.url}/good"), Command(("notify",))

    def fail(*_: object) -> None:
        raise RuntimeError("s3cret")

    monkeypatch.setattr(delivery, "_run", fail)
    alerts = stream.alerts(targets=(good, bad), warn=warnings.append)
    stream.watermark(NOW - 40 * MINUTE)
    for second in range(3):
        alerts.step(NOW + 20_000 * second)
    assert [path for path, _, _ in receiver.requests] == ["/good"]
    assert warnings == ["warning: an alert is not delivered: command notify: internal error: RuntimeError"]


def test_records_with_other_types(stream: Stream) -> None:
    """A progress record whose numbers are none does not stop the evaluation."""
    alerts = stream.alerts(Rule("dropped", "dropped-share", 0.5, within_ms=10 * MINUTE))
    stream.watermark(NOW)
    odd = f'{{"batch_id":0,"at_ms":{NOW},"input_rows":null,"dropped":"3"}}\n'
    (stream.path / PROGRESS_FILE).write_text(odd + ProgressRecord(0, NOW, input_rows=4, malformed=3).to_line() + odd)
    assert alerts.step(NOW + 1) == []
    assert json.loads((stream.path / STATE_FILE).read_bytes())["evaluated_ms"] == NOW + 1


def test_unreadable_state() -> None:
    """A state that is corrupt counts as empty."""
    for data in (b"", b"[]", b"{}", b'{"active": {"a": 1}, "outbox": [], "owner": "", "evaluated_ms": 0}'):
        assert parse_state(data) == NO_ALERTS


def test_page(tmp_path: Path, receiver: Receiver) -> None:
    """A page evaluates the rules of its checkpoints from one thread, also of those that appear later."""
    config = AlertConfig((BEHIND,), (Webhook(receiver.url),), every_ms=20)
    first = Stream(tmp_path / "first")
    first.watermark(1)
    opened = {"first": lambda: LocalTree(first.path)}
    shown: list[str] = []
    with AlertThread(PageAlerts(config, lambda: dict(opened), shown.append).streams, config.every_ms):
        wait_until(lambda: len(receiver.requests) == 1, "the alert of the first checkpoint")
        second = Stream(tmp_path / "second")
        (second.path / "_headwater/job.json").write_text('{"job": "orders"}')
        second.watermark(1)
        opened["second"] = lambda: LocalTree(second.path)
        wait_until(lambda: len(receiver.requests) == 2, "the alert of the second checkpoint")
    assert [json.loads(body)["job"] for body in receiver.bodies] == ["visits", "orders"]
    assert [line.split(": the")[0] for line in shown] == [
        "alert: [CRITICAL] visits: behind",
        "alert: [CRITICAL] orders: behind",
    ]


def test_progress_that_grows(stream: Stream) -> None:
    """New progress records are seen by the next evaluation."""
    alerts = stream.alerts(Rule("dropped", "dropped-share", 0.5, within_ms=10 * MINUTE))
    stream.watermark(NOW)
    assert alerts.step(NOW) == []
    (stream.path / PROGRESS_FILE).write_text(ProgressRecord(0, NOW, input_rows=4, malformed=3).to_line())
    assert [sent.value for sent in alerts.step(NOW + 1)] == [0.75]


@pytest.mark.usefixtures("unreachable_s3")
def test_an_outage_of_the_store_does_not_end_the_alerts(tmp_path: Path) -> None:
    """The client of S3 has errors of its own, which the next evaluation may not meet."""
    (tmp_path / "headwater.toml").write_text('[[alerts.rule]]\nwhen = "watermark-behind"\nabove = "15m"\n')
    config = load_config(tmp_path / "headwater.toml")
    assert config is not None
    files, warned = ObjectTree("s3://bucket/ckpt"), list[str]()
    with pytest.raises(ServiceUnreachable, match="cannot access s3://bucket/ckpt"):
        files.read("metadata")
    with pytest.raises(ServiceUnreachable):
        list(files.read_blocks("metadata"))
    stream = StreamAlerts(files, config, name="visits", warn=warned.append)
    assert stream.step() == []
    assert warned == ["warning: alerts cannot be evaluated: cannot access s3://bucket/ckpt"]
