"""From what a user calls a job to the ``Job`` itself."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from headwater.core.errors import UsageProblem
from headwater.jobs import gallery
from headwater.jobs.job import Job


def gallery_names() -> list[str]:
    return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(gallery.__path__) if info.name[0] != "_")


def gallery_jobs() -> list[Job]:
    return [load_job(name) for name in gallery_names()]


def load_job(reference: str) -> Job:
    """A gallery name, ``package.module:NAME`` or ``path/to/file.py:NAME``; NAME may be left out if there is one job."""
    if ":" not in reference and reference in gallery_names():
        module = importlib.import_module(f"{gallery.__name__}.{reference.replace('-', '_')}")
        return next(job for job in _jobs_in(module).values() if job.name == reference)
    place, _, name = reference.partition(":")
    module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place, reference)
    jobs = _jobs_in(module)
    if not name and len(jobs) == 1:
        return next(iter(jobs.values()))
    if name in jobs:
        return jobs[name]
    raise UsageProblem(
        "unknown-job",
        f"{place} has no job {name!r}" if name else f"{place} has {len(jobs)} jobs: say which",
        evidence={"jobs there": ", ".join(sorted(jobs)) or "none"},
        remedy=f"headwater check {place}:{min(jobs)}" if jobs else "define one: NAME = Job(...)",
    )


def _jobs_in(module: ModuleType) -> dict[str, Job]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Job)}


def _load_module(dotted: str, reference: str) -> ModuleType:
    if dotted in sys.modules:
        return sys.modules[dotted]
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.util.find_spec(dotted)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UsageProblem(
            "unknown-job",
            f"there is no job {reference!r}",
            evidence={"gallery": ", ".join(gallery_names())},
            remedy="headwater jobs   (or name your own: path/to/file.py:NAME)",
        )
    return _sent_by_value(_run(dotted, lambda: importlib.import_module(dotted)))


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageProblem("unknown-job", f"there is no file {path}", remedy="headwater jobs   (lists the gallery)")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    sys.modules[path.stem] = module
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))

    def execute() -> ModuleType:
        loader.exec_module(module)
        return module

    return _sent_by_value(_run(str(path), execute))


def _run(place: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except Exception as error:
        raise UsageProblem(
            "broken-job-file",
            f"{place} cannot be loaded",
            evidence={type(error).__name__: error},
            remedy=f"python {place}   (or add --debug to see where)",
        ) from error


def _sent_by_value(module: ModuleType) -> ModuleType:
    """Workers get the user's code with the task: they need not be able to import his file."""
    from pyspark import cloudpickle  # noqa: PLC0415  naming a job must not load Spark before it is found

    cloudpickle.register_pickle_by_value(module)
    return module
