"""The rules in ``headwater.toml``: when to alert, and where alerts are sent."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

from headwater.core.errors import UsageProblem
from headwater.core.text import count
from headwater.core.times import seconds_from_text
from headwater.views.formatting import format_duration

CONFIG_FILE = "headwater.toml"
CONFIG_VARIABLE = "HEADWATER_CONFIG"
SEVERITIES = ("info", "warning", "critical")
EVERY_MS = 15_000
Unit = Literal["ms", "rows", "share", "times", "none"]


@dataclass(frozen=True)
class Kind:
    """A kind of rule: the unit and the default of its limit, the option that sets it, and the defaults of its window.

    ``within_ms`` and ``by`` are None for kinds that have no such option.
    """

    unit: Unit
    default: float
    option: str = "above"
    within_ms: int | None = None
    by: float | None = None


MINUTE, HOUR = 60_000, 3_600_000
KINDS: dict[str, Kind] = {
    "watermark-behind": Kind("ms", 30 * MINUTE),
    "lag-growing": Kind("rows", 1_000, within_ms=10 * MINUTE, by=0.1),
    "batches-failing": Kind("times", 1, "times", within_ms=HOUR),
    "state-growing": Kind("rows", 10_000, within_ms=6 * HOUR, by=0.2),
    "nothing-committed": Kind("ms", 15 * MINUTE),
    "dropped-share": Kind("share", 0.01, within_ms=10 * MINUTE),
    "retention-close": Kind("ms", 24 * HOUR, "below"),
    "source-problem": Kind("none", 0, ""),
}
SHOWN_UNITS: dict[Unit, Callable[[float], str]] = {
    "ms": lambda value: format_duration(int(value)),
    "rows": lambda value: f"{value:,.0f} rows",
    "share": lambda value: f"{value * 100:g} %",
    "times": lambda value: count(int(value), "failure"),
    "none": lambda _: "",
}
NEED_SOURCES = frozenset({"retention-close", "source-problem", "nothing-committed"})
NEED_RECORDS = frozenset({"lag-growing", "state-growing", "dropped-share"})
_EXAMPLE = '[[alerts.rule]]\nwhen = "watermark-behind"\nabove = "15m"'
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Rule:
    """A rule. ``limit`` is in the unit of its kind: milliseconds, rows, a share of 1, or a number of times."""

    name: str
    when: str
    limit: float
    within_ms: int = 0
    by: float = 0.0
    for_ms: int = 0
    """How long the condition has to hold before the alert fires."""
    jobs: tuple[str, ...] = ("*",)
    severity: str = "warning"

    @property
    def kind(self) -> Kind:
        return KINDS[self.when]

    def applies_to(self, stream: str) -> bool:
        """Return whether the rule is about a stream, by the name of its job or query."""
        return any(fnmatchcase(stream, pattern) for pattern in self.jobs)


@dataclass(frozen=True)
class Webhook:
    """A URL that receives alerts with POST, as JSON or in the form that Slack, Mattermost and Rocket.Chat accept."""

    url: str = field(repr=False)  # such a URL is a password
    slack: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The host, for messages; the path and the query may be secrets."""
        return f"webhook {re.split('[/?#]', self.url.partition('://')[2])[0].rpartition('@')[2]}"

    @property
    def key(self) -> str:
        """An identifier that shows no secret: one host may have several webhooks."""
        return f"{self.name} {_digest(self.url)}"


@dataclass(frozen=True)
class Command:
    """A program that receives alerts as JSON on standard input."""

    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"command {Path(self.arguments[0]).name}"

    @property
    def key(self) -> str:
        return f"{self.name} {_digest(shlex.join(self.arguments))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


Target = Webhook | Command


@dataclass(frozen=True)
class AlertConfig:
    """The rules and targets of a file. ``every_ms`` is the interval at which the rules are evaluated."""

    rules: tuple[Rule, ...] = ()
    targets: tuple[Target, ...] = ()
    every_ms: int = EVERY_MS

    @property
    def records_ms(self) -> int:
        """How far the rules look back at the records of batches; 0 if none does."""
        return max((rule.within_ms for rule in self.rules if rule.when in NEED_RECORDS), default=0)

    def for_stream(self, stream: str) -> tuple[Rule, ...]:
        """Return the rules that apply to a stream."""
        return tuple(rule for rule in self.rules if rule.applies_to(stream))


def load_config(path: str | Path | None = None) -> AlertConfig:
    """Return the alerts of a file, by default of ``HEADWATER_CONFIG`` or ``headwater.toml`` in the current folder.

    Without a file there are no rules. Raises ``UsageProblem`` for a file that is missing although it was named, or wrong.
    """
    given = path or os.environ.get(CONFIG_VARIABLE)
    file = Path(given or CONFIG_FILE)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if given:
            raise UsageProblem("bad-config", f"there is no file {file}", remedy=f"check {CONFIG_VARIABLE}") from None
        return AlertConfig()
    except OSError as error:
        raise UsageProblem("bad-config", f"cannot read {file}", evidence={"reason": error.strerror or error}) from None
    except (ValueError, RecursionError) as error:  # also of dates and numbers that are out of range
        raise UsageProblem("bad-config", f"{file} is not valid TOML", evidence={"reason": str(error)}) from None
    return parse_config(values, str(file))


def parse_config(values: Mapping[str, Any], file: str = CONFIG_FILE) -> AlertConfig:
    """Return the alerts of a parsed file. Other tables than ``alerts`` are ignored."""
    alerts = values.get("alerts", {})
    if not isinstance(alerts, dict):
        _refuse(file, "alerts is not a table")
    _refuse_unknown(alerts, {"rule", "send", "every"}, file, "[alerts]")
    rules = tuple(
        _rule(value, file, f"rule {number}") for number, value in enumerate(_tables(alerts, "rule", file), start=1)
    )
    twice = [rule.name for number, rule in enumerate(rules) if rule.name in {one.name for one in rules[:number]}]
    if twice:
        _refuse(file, f"two rules have the name {twice[0]!r}", remedy='give each a name of its own: name = "…"')
    targets = tuple(
        _target(value, file, f"send {number}") for number, value in enumerate(_tables(alerts, "send", file), start=1)
    )
    every = _duration(alerts.get("every", "15s"), file, "[alerts]", "every")
    return AlertConfig(rules, targets, every)


def _tables(alerts: Mapping[str, Any], name: str, file: str) -> list[dict[str, Any]]:
    found = alerts.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        _refuse(file, f"alerts.{name} is not a list of tables", remedy=f"begin each with [[alerts.{name}]]")
    return found


def _rule(value: Mapping[str, Any], file: str, place: str) -> Rule:
    when = value.get("when")
    if not isinstance(when, str) or when not in KINDS:
        _refuse(file, f"{place}: {when!r} is not a kind of rule", known=", ".join(KINDS), remedy=_EXAMPLE)
    kind = KINDS[when]
    known = {"when", "name", "for", "job", "severity", kind.option}
    known |= ({"within"} if kind.within_ms is not None else set()) | ({"by"} if kind.by is not None else set())
    _refuse_unknown(value, known - {""}, file, f"{place} ({when})")
    severity = value.get("severity", "warning")
    if severity not in SEVERITIES:
        _refuse(file, f"{place}: {severity!r} is not a severity", known=", ".join(SEVERITIES))
    within = value.get("within")
    by = value.get("by")
    name = value.get("name", when)
    if not isinstance(name, str) or not name:
        _refuse(file, f"{place}: name is not a string")
    return Rule(
        name,
        when,
        _limit(value[kind.option], kind, file, place) if kind.option in value else kind.default,
        (kind.within_ms or 0) if within is None else _duration(within, file, place, "within"),
        (kind.by or 0.0) if by is None else _share(by, file, place, "by"),
        _duration(value["for"], file, place, "for", least=0) if "for" in value else 0,
        _patterns(value.get("job", "*"), file, place),
        severity,
    )


def _limit(value: Any, kind: Kind, file: str, place: str) -> float:
    if kind.unit == "ms":
        return _duration(value, file, place, kind.option)
    if kind.unit == "share":
        return _share(value, file, place, kind.option)
    least = 1 if kind.unit == "times" else 0
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        _refuse(file, f"{place}: {kind.option} is not a number of at least {least}", found=value)
    return value


def _duration(value: Any, file: str, place: str, option: str, least: int = 1) -> int:
    try:
        found = int(seconds_from_text(value) * 1000) if isinstance(value, str) else -1
    except ValueError:
        found = -1
    if found < least:
        _refuse(file, f"{place}: {option} is not a duration", found=value, remedy=f'{option} = "15m"')
    return found


def _share(value: Any, file: str, place: str, option: str) -> float:
    try:
        if isinstance(value, str) and value.strip().endswith("%"):
            found = float(value.strip()[:-1]) / 100
        else:
            found = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found < float("inf"):
        _refuse(file, f"{place}: {option} is not a share", found=value, remedy=f'{option} = "5%"')
    return found


def _patterns(value: Any, file: str, place: str) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        _refuse(file, f"{place}: job is not a name or a list of names", found=value, remedy='job = "visits-*"')
    return tuple(found)


def _target(value: Mapping[str, Any], file: str, place: str) -> Target:
    if ("webhook" in value) == ("command" in value):
        _refuse(file, f"{place} needs either a webhook or a command", remedy='webhook = "https://…"')
    if "command" in value:
        _refuse_unknown(value, {"command"}, file, place)
        return Command(_arguments(value["command"], file, place))
    _refuse_unknown(value, {"webhook", "format", "headers"}, file, place)
    shape = value.get("format", "json")
    if shape not in ("json", "slack"):
        _refuse(file, f"{place}: {shape!r} is not a format", known="json, slack")
    headers = value.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        _refuse(file, f"{place}: headers is not a table of strings")
    url = _expanded(value["webhook"], file, place)
    _require_url(url, file, place)
    return Webhook(url, shape == "slack", {name: _expanded(text, file, place) for name, text in headers.items()})


def _require_url(url: str, file: str, place: str) -> None:
    """Refuse what cannot be the URL of a webhook. No message quotes it: such a URL is a password."""
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        _refuse(file, f"{place}: the webhook contains a space or a control character", remedy="write a space as %20")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_url = False
    if not is_url:
        _refuse(file, f"{place}: the webhook is not an http or https URL")
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    if not has_port:
        _refuse(file, f"{place}: the port of the webhook is not a number from 1 to 65535")


def _arguments(value: Any, file: str, place: str) -> tuple[str, ...]:
    try:
        found = shlex.split(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        _refuse(
            file, f"{place}: command is not a program with its arguments", remedy='command = ["notify", "--urgent"]'
        )
    return tuple(found)


def _expanded(value: Any, file: str, place: str) -> str:
    """Return a text with the environment variables that it names as ``${NAME}``, so that no file has to hold a secret."""
    if not isinstance(value, str):
        _refuse(file, f"{place}: expected a string", found=value)
    missing = [name for name in _VARIABLE.findall(value) if name not in os.environ]
    if missing:
        _refuse(file, f"{place}: the environment variable {missing[0]} is not set", remedy=f"export {missing[0]}=…")
    return _VARIABLE.sub(lambda found: os.environ[found[1]], value)


def _refuse_unknown(value: Mapping[str, Any], known: set[str], file: str, place: str) -> None:
    unknown = sorted(value.keys() - known)
    if unknown:
        _refuse(file, f"{place} has no option {unknown[0]!r}", known=", ".join(sorted(known)))


def _refuse(file: str, problem: str, *, remedy: str | None = None, **evidence: object) -> NoReturn:
    raise UsageProblem("bad-config", problem, evidence={"file": file, **evidence}, remedy=remedy)
