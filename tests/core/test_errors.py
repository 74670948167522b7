"""The errors that users meet."""

from __future__ import annotations

import json

from headwater.core.errors import ChangeRefused, CheckpointUnreadable, HeadwaterError, UsageProblem


def test_text_has_problem_evidence_and_remedy() -> None:
    """An error prints as problem, aligned evidence, and a remedy to paste."""
    error = ChangeRefused(
        "state-pruned",
        "cannot rewind visits to batch 41",
        evidence={"needs": "version 42", "found it": "version 48"},
        remedy="headwater rewind visits --to 47",
    )
    assert str(error).splitlines() == [
        "error[state-pruned]: cannot rewind visits to batch 41",
        "  needs     version 42",
        "  found it  version 48",
        "help: headwater rewind visits --to 47",
    ]


def test_same_object_prints_as_json() -> None:
    """The dictionary form holds all that the text does."""
    error = CheckpointUnreadable("torn-file", "offsets/5 is torn", evidence={"file": "offsets/5"})
    assert json.loads(json.dumps(error.as_dict())) == {
        "error": "torn-file",
        "problem": "offsets/5 is torn",
        "evidence": {"file": "offsets/5"},
        "help": None,
    }


def test_classes_have_exit_statuses_of_their_own() -> None:
    """Scripts tell the classes apart by exit status; usage is 2 as everywhere."""
    statuses = [one.exit_status for one in HeadwaterError.__subclasses__()]
    assert len(set(statuses)) == len(statuses)
    assert UsageProblem.exit_status == 2
    assert all(status == 2 or status >= 10 for status in statuses)
