"""Loading jobs by name, module or file."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.core.errors import UsageProblem
from headwater.jobs.loading import gallery_jobs, gallery_names, load_job

FILE = '''
from headwater import Console, Job, Rate
from {helper} import twice

def doubled(rows):
    """Every number, doubled."""
    return rows.select(twice(rows.value).alias("value"))

DOUBLED = Job("doubled", doubled, reads=Rate(), writes=Console())
'''
HELPER = """
def twice(value):
    return value * 2
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())


def refused(reference: str) -> UsageProblem:
    with pytest.raises(UsageProblem) as problem:
        load_job(reference)
    return problem.value


def test_gallery() -> None:
    """Every name of the gallery loads a job of that name."""
    assert [job.name for job in gallery_jobs()] == gallery_names()
    assert all(job.about for job in gallery_jobs())


def test_a_file_and_a_module(tmp_path: Path) -> None:
    """A file is given by its path and a module by its dotted name; NAME is optional if there is only one job."""
    (tmp_path / "helper_one.py").write_text(HELPER)
    (tmp_path / "json.py").write_text(FILE.format(helper="helper_one"))
    assert load_job("json.py:DOUBLED").name == load_job("./json.py").name == "doubled"
    assert sys.modules["json"].__name__ == "json", "a file must not replace a module of the same name"
    assert "loads" in vars(sys.modules["json"])
    (tmp_path / "my_jobs").mkdir()
    (tmp_path / "my_jobs" / "numbers.py").write_text(FILE.format(helper="helper_one"))
    assert load_job("my_jobs.numbers:DOUBLED").name == "doubled"


def test_workers_do_not_need_the_users_files(tmp_path: Path) -> None:
    """A job's function and the modules next to it are pickled by value."""
    from pyspark import cloudpickle

    (tmp_path / "helper_two.py").write_text(HELPER)
    (tmp_path / "jobs.py").write_text(FILE.format(helper="helper_two"))
    sent = cloudpickle.dumps(load_job("jobs.py").transform)
    (tmp_path / "sent").write_bytes(sent)
    code = "import pickle; f = pickle.load(open('../sent', 'rb')); print(f.__globals__['twice'](21))"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True, check=True)
    assert done.stdout == "42\n"
    assert pickle.loads(sent).__doc__ == "Every number, doubled."


def test_unknown_names(tmp_path: Path) -> None:
    """An unknown name is refused with the closest existing one."""
    assert refused("browser-stat-stateful").remedy == "browser-stats-stateful"
    assert "gallery" in refused("nothing.like_it:JOB").evidence
    assert "file missing.py does not exist" in refused("missing.py:JOB").problem
    (tmp_path / "empty.py").write_text("")
    assert "defines no job" in refused("empty.py").problem
    job = "{} = Job('{}', print, reads=Rate(), writes=Console())\n"
    two = "from headwater import *\n" + job.format("A", "a") + job.format("B", "b")
    (tmp_path / "two.py").write_text(two)
    assert "2 jobs" in refused("two.py").problem
    assert refused("two.py:C").evidence["jobs"] == "A, B"


def test_a_file_with_an_error(tmp_path: Path) -> None:
    """An error while a file is loaded is reported with its line, without a traceback."""
    (tmp_path / "broken.py").write_text("x = 1\nprint(undefined)\n")
    problem = refused("broken.py:JOB")
    assert problem.evidence["NameError"] == "name 'undefined' is not defined"
    assert problem.evidence["in"].endswith("broken.py:2")
    (tmp_path / "typo.py").write_text("def f(:\n")
    assert "SyntaxError" in refused("typo.py:JOB").evidence
