"""``headwater alerts``: show, evaluate and test the rules of ``headwater.toml``, or print them for Prometheus."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.app import INSPECT, JsonLines, app
from headwater.cli.checkpoint_options import checkpoint_names
from headwater.cli.output import json_line, note, say, table
from headwater.core.errors import ServiceUnreachable, UsageProblem

if TYPE_CHECKING:
    from headwater.alerts.evaluation import Condition
    from headwater.alerts.rules import AlertConfig

STATES = {True: "met", False: "ok", None: "unknown"}


@app.command(rich_help_panel=INSPECT)
def alerts(
    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CKPT...]",
            help="Checkpoints to evaluate the rules on, now. Nothing is sent.",
            autocompletion=checkpoint_names,
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="File with the rules; default: headwater.toml in this folder.")
    ] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print the rules as alerting rules of Prometheus, in YAML.")
    ] = False,
    test: Annotated[bool, typer.Option("--test", help="Send a test alert to every target.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Show the alert rules of headwater.toml, or evaluate them on checkpoints.

    The rules are evaluated while a job runs, by `headwater run`, `headwater.attach` and `headwater ui`. Each alert is sent
    once when it fires and once when it resolves, to the webhooks and commands in the file.

    With checkpoints, the state of each rule is printed, and the exit status is 1 if the condition of a rule is met.

    Examples:
      headwater alerts browser-stats-stateful
      headwater alerts --prometheus
      headwater alerts --test
    """
    from headwater.alerts.rules import CONFIG_FILE, load_config

    if (prometheus or test) and checkpoints:
        option = "--prometheus" if prometheus else "--test"
        raise UsageProblem("bad-option", f"{option} takes no checkpoint", remedy=f"headwater alerts {option}")
    found = load_config(config)
    if not found.rules:
        raise UsageProblem(
            "no-rules",
            f"{config or CONFIG_FILE} has no alert rules",
            remedy='write into it:\n[[alerts.rule]]\nwhen = "watermark-behind"\nabove = "15m"',
        )
    if prometheus:
        from headwater.alerts.prometheus import prometheus_rules

        say(prometheus_rules(found.rules).rstrip("\n"))
    elif test:
        _send_test(found)
    elif checkpoints:
        _evaluate(checkpoints, found, as_json=as_json)
    else:
        _show(found, as_json=as_json)


def _evaluate(checkpoints: list[str], config: AlertConfig, *, as_json: bool) -> None:
    import time

    from headwater.alerts.evaluation import evaluate, needs_sources
    from headwater.alerts.history import HistoryReader
    from headwater.checkpoint.locate import open_checkpoint
    from headwater.guards.check import check_sources

    conditions: list[Condition] = []
    for name in checkpoints:
        files = open_checkpoint(name)
        now_ms = time.time_ns() // 1_000_000
        history = HistoryReader(files, records_ms=config.records_ms).read(now_ms)
        if needs_sources(config.for_stream(history.name), history, now_ms):
            history = replace(history, sources=check_sources(files))
        conditions += evaluate(config.rules, history, now_ms)
    if as_json:
        for one in conditions:
            json_line(
                {
                    "job": one.stream,
                    "rule": one.rule.name,
                    "state": STATES[one.is_met],
                    "value": one.value,
                    "summary": one.summary,
                }
            )
    else:
        table(
            ["job", "rule", "state", ""],
            [(one.stream, one.rule.name, STATES[one.is_met], one.summary) for one in conditions],
        )
    if any(one.is_met for one in conditions):
        raise typer.Exit(1)


def _send_test(config: AlertConfig) -> None:
    import time

    from headwater.alerts.delivery import NotDelivered, deliver
    from headwater.alerts.state import Notification

    if not config.targets:
        raise UsageProblem(
            "no-targets", "there is no target to send to", remedy='[[alerts.send]]\nwebhook = "https://…"'
        )
    now_ms = time.time_ns() // 1_000_000
    about = "this is a test of headwater alerts"
    alert = Notification("firing", "test", "test", "info", "headwater", "", about, None, None, now_ms)
    problems = []
    for target in config.targets:
        try:
            deliver(target, alert)
        except NotDelivered as error:
            problems.append(str(error))
        else:
            say(f"delivered: {target.name}")
    if problems:
        for problem in problems[:-1]:
            note(problem)
        raise ServiceUnreachable("not-delivered", problems[-1])


def _show(config: AlertConfig, *, as_json: bool) -> None:
    from headwater.alerts.rules import SHOWN_UNITS

    if as_json:
        for rule in config.rules:
            json_line({"rule": rule.name, "when": rule.when, "limit": rule.limit, "unit": rule.kind.unit})
        return
    table(
        ["rule", "when", "limit", "for", "jobs", "severity"],
        [
            (
                rule.name,
                rule.when,
                SHOWN_UNITS[rule.kind.unit](rule.limit),
                SHOWN_UNITS["ms"](rule.for_ms) if rule.for_ms else "",
                ", ".join(rule.jobs),
                rule.severity,
            )
            for rule in config.rules
        ],
    )
    for target in config.targets:
        say(f"sends to {target.name}")
    if not config.targets:
        note("no targets: alerts are printed by the job or page that evaluates them")
