"""The page on differences from the source documents describes the gallery as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.jobs.gallery._records import with_profit
from headwater.jobs.job import Job
from headwater.jobs.loading import gallery_names, load_job
from headwater.jobs.rules import has_socket

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "differences.md").read_text()
SETTING = re.compile(r"`(?:([a-z-]+) )?--set (\w+)=([^`]+)`")
PARTS = [part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if "\nJob" in part]


def entry(title: str) -> str:
    """What Headwater does, according to the entry with this title."""
    text = PAGE.split(f"### {title}\n")[1].split("\n### ")[0]
    return " ".join(text.split("**Headwater:**")[1].split("**Why:**")[0].split())


def jobs_of(part: str) -> list[str]:
    listed = part.split("\nJob")[1].split("\n\n", maxsplit=1)[0]
    return [name for name in re.findall(r"gallery/([a-z-]+)\.md", listed) if name in gallery_names()]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.splitlines()[0])
def test_settings_are_those_of_the_jobs(part: str) -> None:
    """Each ``--set`` on the page is accepted by the job that it names, or by a job of its document."""
    for named, name, value in SETTING.findall(part):
        candidates = [load_job(job) for job in ([named] if named else jobs_of(part))]
        accepting = [job for job in candidates if name in job.parameters]
        assert accepting, f"no job has the parameter {name}"
        for job in accepting:
            job.with_settings({name: value.strip('"')})


def test_every_job_of_a_document_is_listed() -> None:
    """A job is listed under the document that its golden file names."""
    golden = [json.loads(file.read_text()) for file in (ROOT / "tests" / "golden").glob("*.json")]
    for part in PARTS:
        title = part.splitlines()[0]
        assert {one["job"] for one in golden if one["document"].startswith(title)} == set(jobs_of(part)), title


@pytest.mark.parametrize(
    ("title", "job", "claim", "holds"),
    [
        (
            "Size of the windows",
            "visits-windows-counter",
            "10 minutes",
            lambda job: job.parameters["window"] == "10 minutes",
        ),
        (
            "Keys of the output records",
            "browser-stats-stateful",
            "the browser",
            lambda job: job.writes.key == "browser",
        ),
        (
            "Weekly totals in two forms",
            "weekly-totals",
            "custom state",
            lambda job: job.parameters["form"] == "custom_state",
        ),
        (
            "Trailing commas",
            "profit-per-id",
            "allowTrailingComma",
            lambda job: job.reads.decode["allowTrailingComma"] == "true",
        ),
        (
            "Times in the records",
            "profit-per-id",
            "the source parses",
            lambda job: "time TIMESTAMP" in job.reads.schema,
        ),
        ("A second start on a socket", "word-count", "each run on a socket", has_socket),
        ("Orders of new files only", "order-status-per-batch", "new files of each batch", lambda job: job.per_batch),
        ("Sales per window", "retail-sales", "per=window`, the default", lambda job: job.parameters["per"] == "window"),
        ("Watermark in complete mode", "sliding-counts", "the same query", lambda job: job.mode == "complete"),
        ("Sessions", "user-sessions", "session_window", lambda job: job.parameters["form"] == "session_window"),
    ],
)
def test_claim_holds(title: str, job: str, claim: str, holds: Callable[[Job], object]) -> None:
    """What an entry says of a job is true of the job."""
    assert claim in entry(title)
    assert holds(load_job(job))


def test_profit_is_described_as_it_is_computed() -> None:
    """The page and the step agree on what a trade of an unknown type counts."""
    assert "any other type counts as `amount`" in PAGE
    assert "amount for any other type" in " ".join((with_profit.__doc__ or "").split())
