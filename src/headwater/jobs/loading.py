"""From what a user calls a job to the ``Job`` itself."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
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
    if jobs:
        raise UsageProblem(
            "unknown-job",
            f"{place} has no job {name!r}" if name else f"{place} has {len(jobs)} jobs: say which",
            evidence={"jobs there": ", ".join(sorted(jobs))},
            remedy=f"{place}:{get_close_matches(name, jobs, n=1, cutoff=0)[0]}",
        )
    raise UsageProblem(
        "unknown-job",
        f"{place} has no job in it",
        remedy="define one there: NAME = Job(...), with `from headwater import Job`",
    )


def _jobs_in(module: ModuleType) -> dict[str, Job]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Job)}


def _load_module(dotted: str, reference: str) -> ModuleType:
    if dotted in sys.modules:
        return sys.modules[dotted]
    folder = Path.cwd()
    _importable_from(folder)
    try:
        found = importlib.util.find_spec(dotted)
    except (ImportError, ValueError):
        found = None
    if found is None:
        close = get_close_matches(dotted, gallery_names(), n=1)
        raise UsageProblem(
            "unknown-job",
            f"there is no job {reference!r}",
            evidence={"gallery": ", ".join(gallery_names())},
            remedy=close[0] if close else "headwater jobs   (or name your own: path/to/file.py:NAME)",
        )
    return _run(dotted, folder, lambda: importlib.import_module(dotted))


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageProblem(
            "unknown-job", f"there is no file {path}", remedy="headwater jobs   (lists what comes with Headwater)"
        )
    folder = path.parent.resolve()
    # A name of our own: the file may be called json.py.
    name = "job_file_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module
    _importable_from(folder)

    def execute() -> ModuleType:
        loader.exec_module(module)
        return module

    return _run(str(path), folder, execute)


def _importable_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _run(place: str, folder: Path, load: Callable[[], ModuleType]) -> ModuleType:
    before = set(sys.modules)
    try:
        module = load()
    except Exception as error:
        raise UsageProblem(
            "broken-job-file",
            f"{place} cannot be loaded",
            evidence={type(error).__name__: error, **_place_of(error, folder)},
            remedy="mend it, or add --debug to see the whole traceback",
        ) from error
    for name in {module.__name__, *set(sys.modules) - before}:
        _send_by_value(name, folder)
    return module


def _place_of(error: Exception, folder: Path) -> dict[str, str]:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(folder)]
    return {"in": f"{own[-1].filename}:{own[-1].lineno}"} if own else {}


def _send_by_value(name: str, folder: Path) -> None:
    """Workers get the user's own code with the task: they need not be able to import his files."""
    from pyspark import cloudpickle  # noqa: PLC0415  naming a job must not load Spark before it is found

    module = sys.modules[name]
    file = Path(getattr(module, "__file__", None) or "/")
    if file.is_relative_to(folder) and "site-packages" not in file.parts:
        cloudpickle.register_pickle_by_value(module)
