"""Rules and targets as ``headwater.toml`` has them."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import pytest

from checkpoint.fuzzing import mutated
from headwater.alerts.rules import KINDS, AlertConfig, Command, Rule, Webhook, load_config, parse_config
from headwater.core.errors import UsageProblem

FILE = """
[other]
ignored = true

[alerts]
every = "5s"

[[alerts.rule]]
when = "watermark-behind"
above = "15m"
for = "2m"
job = ["visits-*", "orders"]
severity = "critical"

[[alerts.rule]]
name = "too many dropped"
when = "dropped-share"
above = "5%"
within = "1h"

[[alerts.rule]]
when = "retention-close"
below = "2 days"

[[alerts.rule]]
when = "lag-growing"
above = 5000
by = 0.5

[[alerts.send]]
webhook = "https://chat.example/hooks/${HOOK}"
format = "slack"
headers = { Authorization = "Bearer ${TOKEN}" }

[[alerts.send]]
command = "notify --urgent 'on call'"
"""


def parse(text: str) -> AlertConfig:
    return parse_config(tomllib.loads(text))


def test_a_complete_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are in the units of their kinds; secrets come from the environment."""
    monkeypatch.setenv("HOOK", "s3cret")
    monkeypatch.setenv("TOKEN", "t0ken")
    config = parse(FILE)
    assert config.every_ms == 5000
    behind, dropped, retention, lag = config.rules
    assert behind == Rule(
        "watermark-behind",
        "watermark-behind",
        900_000,
        for_ms=120_000,
        jobs=("visits-*", "orders"),
        severity="critical",
    )
    assert (dropped.name, dropped.limit, dropped.within_ms) == ("too many dropped", 0.05, 3_600_000)
    assert retention.limit == 2 * 86_400_000
    assert (lag.limit, lag.by, lag.within_ms) == (5000, 0.5, 600_000)
    hook, command = config.targets
    assert hook == Webhook("https://chat.example/hooks/s3cret", slack=True, headers={"Authorization": "Bearer t0ken"})
    assert command == Command(("notify", "--urgent", "on call"))


def test_secrets_are_not_shown() -> None:
    """Neither the representation of a webhook nor its name or key contains the URL's path."""
    hook = Webhook("https://user:pass@chat.example/hooks/s3cret", headers={"A": "t0ken"})
    assert hook.name == "webhook chat.example"
    for text in (repr(hook), hook.key):
        assert not any(secret in text for secret in ("s3cret", "pass", "t0ken"))
    assert hook.key != Webhook("https://chat.example/hooks/other").key
    assert Webhook("https://chat.example:8443?key=s3cret").name == "webhook chat.example:8443"


def test_rules_of_a_stream() -> None:
    """A rule applies to the jobs that its patterns match, by default to all."""
    config = parse('[[alerts.rule]]\nwhen="nothing-committed"\n[[alerts.rule]]\nwhen="state-growing"\njob="visits*"')
    assert [rule.when for rule in config.for_stream("orders")] == ["nothing-committed"]
    assert [rule.when for rule in config.for_stream("visits-2")] == ["nothing-committed", "state-growing"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_defaults(kind: str) -> None:
    """A rule needs nothing but its kind."""
    (rule,) = parse(f'[[alerts.rule]]\nwhen = "{kind}"').rules
    assert (rule.name, rule.limit) == (kind, KINDS[kind].default)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("alerts = 1", "alerts is not a table"),
        ("[alerts]\nrules = []", "has no option 'rules'"),
        ("[alerts.rule]\nwhen = 'nothing-committed'", "alerts.rule is not a list of tables"),
        ("[[alerts.rule]]\nwhen = 'late'", "'late' is not a kind of rule"),
        ("[[alerts.rule]]\nabove = 1", "None is not a kind of rule"),
        (
            "[[alerts.rule]]\nwhen = 'nothing-committed'\nbelow = '5m'",
            "rule 1 (nothing-committed) has no option 'below'",
        ),
        ("[[alerts.rule]]\nwhen = 'nothing-committed'\nwithin = '5m'", "has no option 'within'"),
        ("[[alerts.rule]]\nwhen = 'nothing-committed'\nabove = '5 parsecs'", "above is not a duration"),
        ("[[alerts.rule]]\nwhen = 'nothing-committed'\nabove = 5", "above is not a duration"),
        ("[[alerts.rule]]\nwhen = 'nothing-committed'\nabove = '0s'", "above is not a duration"),
        ("[[alerts.rule]]\nwhen = 'dropped-share'\nabove = 'half'", "above is not a share"),
        ("[[alerts.rule]]\nwhen = 'lag-growing'\nabove = -1", "above is not a number"),
        ("[[alerts.rule]]\nwhen = 'batches-failing'\ntimes = 0", "times is not a number of at least 1"),
        ("[[alerts.rule]]\nwhen = 'source-problem'\nseverity = 'bad'", "'bad' is not a severity"),
        ("[[alerts.rule]]\nwhen = 'source-problem'\njob = []", "job is not a name"),
        (
            "[[alerts.rule]]\nwhen = 'source-problem'\n[[alerts.rule]]\nwhen = 'source-problem'",
            "two rules have the name",
        ),
        ("[[alerts.send]]\nformat = 'json'", "needs either a webhook or a command"),
        ("[[alerts.send]]\nwebhook = 'file:///etc/passwd'", "not an http or https URL"),
        ("[[alerts.send]]\nwebhook = 'https:///hooks/x'", "not an http or https URL"),
        ("[[alerts.send]]\nwebhook = 'https://[::1/x'", "not an http or https URL"),
        ("[[alerts.send]]\nwebhook = 'https://hooks.example.org:abc/x'", "the port of the webhook is not a number"),
        ("[[alerts.send]]\nwebhook = 'https://hooks.example.org:99999/x'", "the port of the webhook is not a number"),
        ("[[alerts.send]]\nwebhook = 'https://hooks.example.org/my hook'", "the webhook contains a space"),
        ("[[alerts.send]]\nwebhook = 'https://a/${NOT_SET_ANYWHERE}'", "NOT_SET_ANYWHERE is not set"),
        ("[[alerts.send]]\nwebhook = 'https://a/b'\nformat = 'xml'", "'xml' is not a format"),
        ("[[alerts.send]]\ncommand = []", "command is not a program"),
    ],
)
def test_mistakes(text: str, problem: str) -> None:
    """Each mistake is refused by name, with the file that has it."""
    with pytest.raises(UsageProblem) as refused:
        parse(text)
    assert problem in refused.value.problem
    assert refused.value.evidence["file"] == "headwater.toml"
    assert "hooks" not in refused.value.problem


def test_which_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the current folder is used, or the one that the variable names; none is needed."""
    monkeypatch.chdir(tmp_path)
    assert load_config() == AlertConfig()
    (tmp_path / "headwater.toml").write_text('[[alerts.rule]]\nwhen = "source-problem"')
    assert len(load_config().rules) == 1
    monkeypatch.setenv("HEADWATER_CONFIG", "other.toml")
    with pytest.raises(UsageProblem, match=r"there is no file other\.toml"):
        load_config()
    (tmp_path / "other.toml").write_text("[")
    with pytest.raises(UsageProblem, match="is not valid TOML"):
        load_config()


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 20))])
def test_hostile_files(turn: int, tmp_path: Path) -> None:
    """A mutated file is understood or refused, and never ends in another error."""
    chance, file, refused = random.Random(turn), tmp_path / "headwater.toml", 0
    for _ in range(500 if turn else 60):
        contents, descriptions = mutated({"file": FILE.encode()}, chance)
        file.write_bytes(next(iter(contents.values()), b""))
        try:
            load_config(file)
        except UsageProblem:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{descriptions}: {file.read_bytes()!r}") from error
    assert refused


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "alerts = 5", "[[alerts]]", "[alerts]\nrule = [[1]]", "[alerts.rule]\nx = 1"],
    ids=["nested", "number", "list", "nested list", "table"],
)
def test_files_of_another_shape(text: str, tmp_path: Path) -> None:
    """Deep nesting and values of other types are refused."""
    file = tmp_path / "headwater.toml"
    file.write_text(text)
    with pytest.raises(UsageProblem):
        load_config(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder in place of the file is refused."""
    with pytest.raises(UsageProblem):
        load_config(tmp_path)
