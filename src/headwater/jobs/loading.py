"""Load a job by the name that a user gives it."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.core.errors import UsageProblem
from headwater.jobs import gallery
from headwater.jobs.job import Job
from headwater.jobs.uris import inputs_from_uris, sink_from_uri

NAMED_SOURCE = re.compile(r"[A-Za-z0-9_]+=")


def gallery_names() -> list[str]:
    """Return the names of the example jobs that come with Headwater."""
    return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(gallery.__path__) if info.name[0] != "_")


def gallery_jobs() -> list[Job]:
    """Return the example jobs that come with Headwater."""
    return [load_job(name) for name in gallery_names()]


def load_job(reference: str) -> Job:
    """Load ``gallery-name``, ``package.module:NAME`` or ``path/to/file.py:NAME``; NAME is optional if there is one job."""
    if ":" not in reference and reference in gallery_names():
        module = importlib.import_module(f"{gallery.__name__}.{reference.replace('-', '_')}")
        return next(job for job in jobs_in(module).values() if job.name == reference)
    place, _, name = reference.partition(":")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place, reference)
    jobs = jobs_in(module)
    if not name and len(jobs) == 1:
        return next(iter(jobs.values()))
    if name in jobs:
        return jobs[name]
    if jobs:
        raise UsageProblem(
            "unknown-job",
            f"{place} has no job {name!r}" if name else f"{place} has {len(jobs)} jobs; choose one",
            evidence={"jobs": ", ".join(sorted(jobs))},
            remedy=f"{place}:{get_close_matches(name, jobs, n=1, cutoff=0)[0]}",
        )
    raise UsageProblem(
        "unknown-job",
        f"{place} defines no job",
        remedy="define one: NAME = Job(...), with `from headwater import Job`",
    )


def select_job(
    job: str | Job,
    *,
    sources: Sequence[str] = (),
    sink: str | None = None,
    mode: str | None = None,
    trigger: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Job:
    """Return a job, given by reference or as a value, with other sources, sink, mode, trigger or parameters.

    ``sources`` are URIs, each with the name of the input that it replaces, ``clicks=kafka://…``, if the job names them.
    """
    found = (load_job(job) if isinstance(job, str) else job).with_settings(settings or {})
    if sources:
        found = found.with_inputs(inputs_from_uris(named_sources(sources, found), found.inputs))
    changes: dict[str, Any] = {}
    if sink:
        changes["writes"] = sink_from_uri(sink, found.writes)
    if mode:
        changes["mode"] = mode
    if trigger:
        changes["trigger"] = trigger
    return replace(found, **changes)


def named_sources(texts: Sequence[str], job: Job) -> dict[str, str]:
    """Return the URIs of ``--source`` by the names of the inputs that they replace."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, uri = text.partition("=") if NAMED_SOURCE.match(text) else ("", "", text)
        known = {"sources": ", ".join(job.inputs)} if any(job.inputs) else None
        if name not in job.inputs:
            if name:
                problem = (
                    f"{job.name} has no source named {name!r}" if known else f"{job.name} does not name its source"
                )
            else:
                problem = f"{job.name} names its sources, so --source needs a name"
            remedy = f"--source {next(iter(job.inputs))}={uri}" if known else f"--source {uri}"
            raise UsageProblem("unknown-source", problem, evidence=known, remedy=remedy)
        if name in found:
            what = f"source {name!r}" if name else "the source"
            raise UsageProblem(
                "bad-option",
                f"{what} is given twice",
                evidence={"found": f"{found[name]}, {uri}"},
                remedy="pass one --source for it",
            )
        found[name] = uri
    return found


def jobs_in(module: ModuleType) -> dict[str, Job]:
    """Return the jobs that a module defines, by the names of their variables."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Job)}


def _load_module(dotted: str, reference: str) -> ModuleType:
    if dotted in sys.modules:
        return sys.modules[dotted]
    folder = Path.cwd()
    _add_to_import_path(folder)
    try:
        spec = importlib.util.find_spec(dotted)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        close = get_close_matches(dotted, gallery_names(), n=1)
        raise UsageProblem(
            "unknown-job",
            f"job {reference!r} does not exist",
            evidence={"gallery": ", ".join(gallery_names())},
            remedy=close[0] if close else "headwater jobs   (or your own job: path/to/file.py:NAME)",
        )
    return _load(dotted, folder, lambda: importlib.import_module(dotted))


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageProblem(
            "unknown-job", f"file {path} does not exist", remedy="headwater jobs   (lists the jobs of the gallery)"
        )
    folder = path.parent.resolve()
    # Prefixed, because the file may have the name of another module, such as json.py.
    name = "job_file_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module
    _add_to_import_path(folder)

    def execute() -> ModuleType:
        loader.exec_module(module)
        return module

    return _load(str(path), folder, execute)


def _add_to_import_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _load(place: str, folder: Path, load: Callable[[], ModuleType]) -> ModuleType:
    """Load a module. Everything that it imports from the same folder is sent to workers by value."""
    before = set(sys.modules)
    try:
        module = load()
    except Exception as error:
        raise UsageProblem(
            "broken-job-file",
            f"cannot load {place}",
            evidence={type(error).__name__: error, **_location_of(error, folder)},
            remedy="fix the file; --debug shows the traceback",
        ) from error
    for name in {module.__name__, *set(sys.modules) - before}:
        _send_by_value(name, folder)
    return module


def _location_of(error: Exception, folder: Path) -> dict[str, str]:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)
    ]
    return {"in": f"{frames[-1].filename}:{frames[-1].lineno}"} if frames else {}


def _send_by_value(name: str, folder: Path) -> None:
    """Send a module of the user's to workers with each task: they may not be able to import its file."""
    from pyspark import cloudpickle  # noqa: PLC0415  an unknown job is refused before Spark is imported

    module = sys.modules[name]
    file = Path(getattr(module, "__file__", None) or "/")
    if file.is_relative_to(folder) and "site-packages" not in file.parts:
        cloudpickle.register_pickle_by_value(module)
