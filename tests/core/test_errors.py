"""The errors that users see."""

from __future__ import annotations

import json

from headwater.core.errors import ChangeRefused, CheckpointUnreadable, HeadwaterError, InternalError, UsageProblem


def test_text_has_problem_evidence_and_remedy() -> None:
    """An error is shown as its problem, its evidence in columns, and a remedy to paste."""
    error = ChangeRefused(
        "state-pruned",
        "cannot rewind visits to batch 41",
        evidence={"needs": "version 42", "oldest": "version 48"},
        remedy="headwater rewind visits --to 47",
    )
    assert str(error).splitlines() == [
        "error[state-pruned]: cannot rewind visits to batch 41",
        "  needs   version 42",
        "  oldest  version 48",
        "help: headwater rewind visits --to 47",
    ]


def test_same_object_prints_as_json() -> None:
    """The dictionary has everything that the text has."""
    error = CheckpointUnreadable("torn-file", "offsets/5 is truncated", evidence={"file": "offsets/5"})
    assert json.loads(json.dumps(error.as_dict())) == {
        "error": "torn-file",
        "problem": "offsets/5 is truncated",
        "evidence": {"file": "offsets/5"},
        "help": None,
    }


def test_classes_have_distinct_exit_statuses() -> None:
    """Scripts can distinguish the classes by exit status; that of usage errors is 2, as is common."""
    statuses = [one.exit_status for one in HeadwaterError.__subclasses__()]
    assert len(set(statuses)) == len(statuses)
    assert UsageProblem.exit_status == 2
    assert all(status == 2 or status >= 10 for status in statuses)


def test_internal_error_asks_for_a_report() -> None:
    """An unhandled exception is shown by its type and first line, without a password that it may contain."""
    error = InternalError(ValueError("no host in kafka://ann:hidden@h/t\nand more"))
    assert str(error).splitlines() == [
        "error[unexpected]: internal error: ValueError (please report it with the output of --debug)",
        "  reason  no host in kafka://ann:***@h/t",
    ]
    assert InternalError(ValueError()).evidence == {}
