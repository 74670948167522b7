"""The job of a checkpoint: the one that a user names, or the one that a run recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import UsageProblem, is_redacted
from headwater.jobs.job import Job, StateView
from headwater.jobs.loading import load_job, named_sources, select_job
from headwater.jobs.uris import uri_of


def job_reference(files: FileTree, given: str | None) -> str:
    """Return the reference of a checkpoint's job. Raise ``UsageProblem`` if it is neither given nor recorded."""
    if given is not None:
        return given
    recorded = read_job_record(files).reference
    if recorded is None:
        raise UsageProblem(
            "unknown-job",
            "this checkpoint does not record where its job is defined",
            evidence={"checkpoint": files.location},
            remedy="name the job: --job path/to/file.py:NAME",
        )
    _refuse_job_inside_checkpoint(files, recorded)
    return recorded


def recorded_job(
    files: FileTree,
    given: str | Job | None = None,
    *,
    sources: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Job:
    """Return the job of a checkpoint with the sources it ran on: the given job, or the one that ``run`` recorded.

    ``sources`` are URIs as ``--source`` takes them. Each replaces the recorded one of its name.
    """
    reference = given if isinstance(given, Job) else job_reference(files, given)
    job = load_job(reference) if isinstance(reference, str) else reference
    recorded = read_job_record(files)
    uris = _recorded_uris(recorded.inputs, job, given=named_sources(sources, job))
    known = recorded.settings if reference == recorded.reference else {}
    return select_job(
        job,
        sources=[f"{name}={uri}" if name else uri for name, uri in uris.items()],
        mode=recorded.mode,
        settings={**known, **(settings or {})},
    )


def _recorded_uris(recorded: Mapping[str, str], job: Job, *, given: Mapping[str, str]) -> dict[str, str]:
    """Return the URIs of a job's inputs, as recorded or given. An input that is still the recorded one has none.

    The job's own input is then used: a record has no passwords.
    """
    uris = dict(given)
    for name, uri in recorded.items():
        if name not in job.inputs or name in given or uri == uri_of(job.inputs[name]):
            continue
        if uri.startswith("postgresql:") and is_redacted(uri):
            raise UsageProblem(
                "secret-not-recorded",
                f"{job.name} ran with a {name} that is not the job's own, and its password is not recorded",
                evidence={"recorded": uri, "job": uri_of(job.inputs[name])},
                remedy=f"--source {name}={uri}   (with the password in place of ***)",
            )
        uris[name] = uri
    return uris


def job_with_state_view(files: FileTree, given: str | Job | None) -> tuple[Job, StateView]:
    """Return a checkpoint's job and its ``state_view``. Raise ``UsageProblem`` if it has none."""
    job = given if isinstance(given, Job) else load_job(job_reference(files, given))
    if job.state_view is None:
        raise UsageProblem(
            "no-state-view",
            f"{job.name} has no state_view",
            remedy="omit --view, or give the job one: Job(..., state_view=FUNCTION)",
        )
    return job, job.state_view


def _refuse_job_inside_checkpoint(files: FileTree, recorded: str) -> None:
    """Raise if the recorded job is a file in the checkpoint: reading a received checkpoint must not run its code."""
    file, folder = Path(recorded.partition(":")[0]).resolve(), files.local_path()
    if folder is not None and file.is_relative_to(folder.resolve()):
        raise UsageProblem(
            "job-in-checkpoint",
            "the recorded job is a file inside the checkpoint, and its code would be run",
            evidence={"checkpoint": files.location, "job": recorded},
            remedy=f"if you trust it: --job {recorded}",
        )
