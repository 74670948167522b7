"""Which alerts of a stream are firing, and which notifications are still to be delivered.

The state is in ``_headwater/alerts.json`` of the checkpoint, so an alert fires once even if the job restarts, or if a page
evaluates the same rules. One process evaluates them at a time: the others wait until it has been silent for a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from headwater.alerts.evaluation import Condition
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.core.times import iso_from_ms

STATE_FILE = f"{HEADWATER_FOLDER}/alerts.json"
SILENT_MS = 90_000


@dataclass(frozen=True)
class Notification:
    """What a target receives. ``value`` is in milliseconds, rows, a share of 1 or a number, as the kind of rule has it."""

    status: Literal["firing", "resolved"]
    rule: str
    when: str
    severity: str
    stream: str
    checkpoint: str
    summary: str
    value: float | None
    batch_id: int | None
    started_at_ms: int
    resolved_at_ms: int | None = None

    @property
    def text(self) -> str:
        """One line for people, as chat messages show it."""
        label = "RESOLVED" if self.status == "resolved" else self.severity.upper()
        return f"[{label}] {self.stream}: {self.rule}: {self.summary}"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "status": self.status,
            "rule": self.rule,
            "when": self.when,
            "severity": self.severity,
            "job": self.stream,
            "checkpoint": self.checkpoint,
            "summary": self.summary,
            "value": self.value,
            "batch_id": self.batch_id,
            "started_at": iso_from_ms(self.started_at_ms),
            "resolved_at": None if self.resolved_at_ms is None else iso_from_ms(self.resolved_at_ms),
            "text": self.text,
        }


@dataclass(frozen=True)
class ActiveAlert:
    """A rule whose condition holds since ``since_ms``; ``fired`` is what was sent for it, None while it waits."""

    since_ms: int
    fired: Notification | None = None


@dataclass(frozen=True)
class Outgoing:
    """A notification that the named targets have not accepted yet."""

    notification: Notification
    targets: tuple[str, ...]
    queued_ms: int
    attempts: int = 0
    next_ms: int = 0


@dataclass(frozen=True)
class AlertState:
    """The alerts of one stream. ``owner`` is the process that evaluates the rules, and did so at ``evaluated_ms``."""

    active: Mapping[str, ActiveAlert]
    outbox: tuple[Outgoing, ...] = ()
    owner: str = ""
    evaluated_ms: int = 0

    def is_owned_by_other(self, owner: str, now_ms: int) -> bool:
        """Return whether another process evaluates the rules at present."""
        return self.owner not in ("", owner) and now_ms - self.evaluated_ms < SILENT_MS

    @property
    def firing(self) -> list[Notification]:
        """The alerts that have fired and are not resolved."""
        return [alert.fired for alert in self.active.values() if alert.fired]

    def without_pending(self) -> AlertState:
        """Return the state without the alerts that have not fired: nobody knows whether their conditions still held."""
        return replace(self, active={name: alert for name, alert in self.active.items() if alert.fired})

    def to_bytes(self) -> bytes:
        """Return the contents of ``alerts.json``."""
        return json.dumps(asdict(self), indent=1).encode()


NO_ALERTS = AlertState({})


def parse_state(data: bytes) -> AlertState:
    """Return the state in ``alerts.json``; an empty one if it is not as this version writes it."""
    try:
        value = json.loads(data)
        active = {
            name: ActiveAlert(int(alert["since_ms"]), _notification(alert["fired"]))
            for name, alert in value["active"].items()
        }
        outbox = tuple(
            Outgoing(
                Notification(**sent["notification"]),
                tuple(sent["targets"]),
                _queued_ms(sent),
                int(sent["attempts"]),
                int(sent["next_ms"]),
            )
            for sent in value["outbox"]
        )
        return AlertState(active, outbox, str(value["owner"]), int(value["evaluated_ms"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return NO_ALERTS


def _queued_ms(sent: Mapping[str, Any]) -> int:
    """Return when a notification was queued, which earlier versions did not record."""
    notification = sent["notification"]
    return int(sent.get("queued_ms") or notification["resolved_at_ms"] or notification["started_at_ms"])


def _notification(value: Any) -> Notification | None:
    return None if value is None else Notification(**value)


def advance(
    state: AlertState, conditions: Iterable[Condition], targets: Iterable[str], now_ms: int
) -> tuple[AlertState, list[Notification]]:
    """Return the state after an evaluation, and the notifications of alerts that fire or resolve with it.

    A rule that no longer exists resolves. A condition that is unknown changes nothing.
    """
    active, sent = dict(state.active), list[Notification]()
    conditions = list(conditions)
    for name in active.keys() - {condition.rule.name for condition in conditions}:
        if fired := active.pop(name).fired:
            sent.append(replace(fired, status="resolved", summary="the rule was removed", resolved_at_ms=now_ms))
    for condition in conditions:
        name = condition.rule.name
        alert = active.get(name)
        if condition.is_met:
            alert = alert or ActiveAlert(now_ms)
            if alert.fired is None and now_ms - alert.since_ms >= condition.rule.for_ms:
                alert = replace(alert, fired=_fire(condition, alert.since_ms))
                sent += [alert.fired] if alert.fired else []
            active[name] = alert
        elif condition.is_met is False and alert is not None:
            del active[name]
            if alert.fired:
                resolved = replace(_fire(condition, alert.since_ms), status="resolved", resolved_at_ms=now_ms)
                sent.append(resolved)
    names = tuple(targets)
    outbox = (*state.outbox, *(Outgoing(notification, names, now_ms) for notification in sent if names))
    return replace(state, active=active, outbox=outbox, evaluated_ms=now_ms), sent


def _fire(condition: Condition, since_ms: int) -> Notification:
    return Notification(
        "firing",
        condition.rule.name,
        condition.rule.when,
        condition.rule.severity,
        condition.stream,
        condition.checkpoint,
        condition.summary,
        condition.value,
        condition.batch_id,
        since_ms,
    )
