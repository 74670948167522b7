"""Deliver notifications: POST them to a webhook, or pass them to a command."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace

from headwater.alerts.rules import Command, Target, Webhook
from headwater.alerts.state import Notification, Outgoing

WEBHOOK_SECONDS, COMMAND_SECONDS = 10.0, 30.0
FIRST_PAUSE_MS, LONGEST_PAUSE_MS, GIVE_UP_MS = 15_000, 600_000, 86_400_000


class NotDelivered(Exception):
    """A target did not accept a notification. The message states the reason and contains no secret."""


def deliver(target: Target, notification: Notification) -> None:
    """Send a notification; raise ``NotDelivered`` if the target does not accept it."""
    if isinstance(target, Webhook):
        _post(target, notification)
    else:
        _run(target, notification)


def _post(target: Webhook, notification: Notification) -> None:
    body = {"text": notification.text} if target.slack else notification.as_dict()
    headers = {"Content-Type": "application/json", "User-Agent": "headwater", **target.headers}
    # The configuration accepts only http and https.
    request = urllib.request.Request(target.url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=WEBHOOK_SECONDS) as answer:  # noqa: S310
            answer.read(1)
    except urllib.error.HTTPError as error:
        error.close()
        raise NotDelivered(f"{target.name} answered with status {error.code}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise NotDelivered(f"{target.name} cannot be reached: {reason}") from None
    except http.client.InvalidURL:
        raise NotDelivered(f"{target.name} cannot be reached: its URL is not valid") from None
    except http.client.HTTPException:
        raise NotDelivered(f"{target.name} did not answer with HTTP") from None
    except ValueError:  # a header with a line break, for example; the error would quote it
        raise NotDelivered(f"{target.name} cannot be reached: its URL or a header is not valid") from None


def _run(target: Command, notification: Notification) -> None:
    facts = {
        "HEADWATER_ALERT_STATUS": notification.status,
        "HEADWATER_ALERT_RULE": notification.rule,
        "HEADWATER_ALERT_SEVERITY": notification.severity,
        "HEADWATER_ALERT_JOB": notification.stream,
        "HEADWATER_ALERT_TEXT": notification.text,
    }
    try:
        done = subprocess.run(
            target.arguments,
            input=json.dumps(notification.as_dict()).encode(),
            env={**os.environ, **facts},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotDelivered(f"{target.name} took longer than {COMMAND_SECONDS:.0f} seconds") from None
    except (OSError, ValueError) as error:
        raise NotDelivered(f"{target.name} cannot be run: {error}") from None
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise NotDelivered(f"{target.name} ended with status {done.returncode}" + (f": {lines[-1]}" if lines else ""))


def deliver_due(
    outbox: Sequence[Outgoing], targets: Sequence[Target], now_ms: int
) -> tuple[tuple[Outgoing, ...], list[str]]:
    """Send what is due, in order. Return what is left, and the problems.

    A notification that a target does not accept is sent again after a pause that doubles, for a day. Until then, the
    later ones for this target wait, so that no alert resolves before it fires.
    """
    left, problems, blocked = [], list[str](), set[str]()
    by_key = {target.key: target for target in targets}
    for outgoing in outbox:
        refused = []
        for key in outgoing.targets:
            if key not in by_key:
                continue
            if key in blocked or now_ms < outgoing.next_ms:
                refused.append(key)
                blocked.add(key)
                continue
            try:
                deliver(by_key[key], outgoing.notification)
            except Exception as error:  # any other error would send again what other targets have just accepted
                known = isinstance(error, NotDelivered)
                problems.append(str(error) if known else f"{by_key[key].name}: internal error: {type(error).__name__}")
                refused.append(key)
                blocked.add(key)
        if refused and now_ms - outgoing.queued_ms < GIVE_UP_MS:
            left.append(_postponed(outgoing, tuple(refused), now_ms))
    return tuple(left), problems


def _postponed(outgoing: Outgoing, targets: tuple[str, ...], now_ms: int) -> Outgoing:
    if now_ms < outgoing.next_ms:
        return replace(outgoing, targets=targets)
    pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2**outgoing.attempts)
    return replace(outgoing, targets=targets, attempts=outgoing.attempts + 1, next_ms=now_ms + pause)
