"""What is refused from the job alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater import Console, Delta, Files, Iceberg, Job, Kafka, Memory, Rate, Socket, Table
from headwater.core.errors import HeadwaterError, JobRefused, UsageProblem
from headwater.jobs.rules import check_job, check_restart
from headwater.jobs.triggers import Trigger, parse_trigger

JOB = Job("job", lambda rows: rows, reads=Files("in"), writes=Console())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "never"}, "not an output mode"),
        ({"mode": "complete", "per_batch": True}, "each micro-batch by itself"),
        ({"mode": "update", "writes": Files("out")}, "update mode into files"),
        ({"mode": "complete", "writes": Table("out")}, "complete mode into table"),
        ({"mode": "update", "writes": Delta("out")}, "update mode into delta without merge_on"),
        ({"mode": "complete", "writes": Delta("out", merge_on="a")}, "cannot merge into delta:out"),
        ({"mode": "update", "writes": Iceberg("c.d.t")}, "update mode into iceberg"),
        ({"trigger": "available-now", "reads": Socket()}, "socket source has no end"),
        ({"trigger": "once", "reads": Rate()}, "rate source has no end"),
        ({"trigger": "real-time 5 seconds", "reads": Kafka("t")}, "only update mode"),
        ({"trigger": "real-time 5 seconds", "mode": "update"}, "only Kafka as source"),
        (
            {
                "trigger": "real-time 5 seconds",
                "mode": "update",
                "reads": Kafka("t", format="avro"),
                "writes": Console(),
            },
            "does not support avro records",
        ),
        (
            {
                "trigger": "real-time 5 seconds",
                "mode": "update",
                "reads": Kafka("t", options={"maxOffsetsPerTrigger": "10"}),
            },
            "does not support maxOffsetsPerTrigger",
        ),
    ],
)
def test_contradictions(changes: dict[str, Any], text: str) -> None:
    """Parts of a job that contradict each other are refused with a remedy."""
    with pytest.raises(JobRefused, match=text) as refused:
        check_job(replace(JOB, **changes))
    assert refused.value.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mode": "update", "writes": Files("out"), "per_batch": True},
        {"mode": "append", "writes": Table("out"), "trigger": "available-now"},
        {"trigger": "10 seconds", "reads": Rate()},
        {"mode": "update", "writes": Delta("out", merge_on="a")},
        {"mode": "update", "writes": Delta("out"), "per_batch": True},
        {"mode": "complete", "writes": Delta("out")},
        {"mode": "complete", "writes": Iceberg("c.d.t")},
        {"trigger": "real-time 5 seconds", "reads": Kafka("t"), "writes": Kafka("u"), "mode": "update"},
    ],
)
def test_valid_jobs(changes: dict[str, Any]) -> None:
    """Valid jobs pass."""
    check_job(replace(JOB, **changes))


def test_a_socket_after_a_restart() -> None:
    """A job on a socket cannot resume, in any mode."""
    with pytest.raises(JobRefused) as refused:
        check_restart(replace(JOB, reads=Socket(), mode="complete"), checkpoint="ck")
    assert refused.value.code == "socket-checkpoint"
    assert refused.value.evidence == {"source": "socket://127.0.0.1:9994", "checkpoint": "ck"}


def test_a_memory_table_after_a_restart() -> None:
    """Only complete mode fills a memory table again."""
    with pytest.raises(JobRefused, match="lost with the process"):
        check_restart(replace(JOB, writes=Memory("m")), checkpoint="ck")
    check_restart(replace(JOB, writes=Memory("m"), mode="complete"), checkpoint="ck")
    check_restart(JOB, checkpoint="ck")


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        (None, Trigger("asap")),
        ("", Trigger("asap")),
        ("once", Trigger("once")),
        ("available-now", Trigger("available-now")),
        ("10 seconds", Trigger("interval", "10 seconds")),
        ("500 milliseconds", Trigger("interval", "500 milliseconds")),
        ("real-time 5 seconds", Trigger("real-time", "5 seconds")),
    ],
)
def test_triggers(text: str | None, trigger: Trigger) -> None:
    """Every form of trigger is parsed."""
    assert parse_trigger(text) == trigger


@pytest.mark.parametrize("text", ["now", "10", "10 fortnights", "real-time", "ten seconds", "-1 seconds"])
def test_invalid_triggers(text: str) -> None:
    """An invalid trigger is refused with the valid forms."""
    with pytest.raises(UsageProblem, match="not a valid trigger") as refused:
        parse_trigger(text)
    assert "available-now" in (refused.value.remedy or "")


def with_parameters(rows: Any, *, window: str = "5 minutes", size: int = 3, share: float = 0.5, all_of: bool = False):
    """The first paragraph.

    The second paragraph.
    """
    return window, size, share, all_of


def test_settings_have_the_type_of_their_default() -> None:
    """Values of ``--set`` become text, numbers or booleans, and the job stays callable."""
    job = replace(JOB, transform=with_parameters)
    assert job.about == "The first paragraph."
    chosen = job.with_settings({"window": "1 hour", "size": "7", "all_of": "true"})
    assert chosen(None) == ("1 hour", 7, 0.5, True)  # type: ignore[arg-type]
    assert chosen.parameters == {"window": "1 hour", "size": 7, "share": 0.5, "all_of": True}
    assert job.parameters["size"] == 3


def test_settings_that_are_not_text_stay_as_they_are() -> None:
    """Values of the Python API, or of a checkpoint's record, have their type already; a record has lists for tuples."""

    def chosen_by(rows: object, *, names: tuple[str, ...] = ("a",), limit: int | None = None, size: int = 3) -> object:
        return names, limit, size

    job = replace(JOB, transform=chosen_by)  # type: ignore[arg-type]
    given = {"names": ["b", "c"], "limit": 5, "size": 2.5}
    assert job.with_settings(given)(None) == (("b", "c"), 5, 2.5)  # type: ignore[arg-type]
    assert job.with_settings(given).with_settings({"limit": None})(None) == (("b", "c"), None, 2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"sizes": "1"}, {"size": "many"}, {"all_of": "perhaps"}])
def test_invalid_settings(settings: dict[str, str]) -> None:
    """An unknown parameter or a value of the wrong type is refused with a remedy."""
    with pytest.raises(HeadwaterError) as refused:
        replace(JOB, transform=with_parameters).with_settings(settings)
    assert refused.value.exit_status == 2
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b"])
def test_invalid_names(name: str) -> None:
    """A job's name must be valid as the name of its checkpoint's folder."""
    with pytest.raises(ValueError, match="folder"):
        replace(JOB, name=name)
