"""The wheel works without a checkout."""

from __future__ import annotations

import json
import os
import re
import signal
import site
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from corpus_support import CorpusCheckpoint

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headwater"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def build_wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the wheel from the checkout with the tools that are installed."""
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment that has the wheel, and the packages it depends on from this environment.

    A .pth file adds the packages but not the checkout: the checkout is installed by another .pth file, which is not
    read from there.
    """
    place = tmp_path_factory.mktemp("elsewhere")
    venv.create(place, with_pip=False)
    paths = {"base": str(place), "platbase": str(place)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place / "bin"


def run(program: Path, *words: str, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([program, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_inside(wheel: Path) -> None:
    """Every file of the package is in the wheel: code, list of jars, the page's style sheet, logging configuration."""
    here = {
        str(file.relative_to(SOURCE.parent))
        for file in SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("headwater/")}
    assert inside == here
    assert {"headwater/jars/ivy.xml", "headwater/web/page.css", "headwater/py.typed"} <= inside


def test_the_version_is_defined_once(wheel: Path, elsewhere: Path, tmp_path: Path) -> None:
    """The wheel's name, its metadata and `headwater --version` all use the version of the package."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (SOURCE / "__init__.py").read_text(), re.MULTILINE)
    assert wheel.name == f"headwater-{version}-py3-none-any.whl"
    assert run(elsewhere / "headwater", "--version", cwd=tmp_path) == f"headwater {version}\n"
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]


def test_the_installed_package_is_used(elsewhere: Path, tmp_path: Path) -> None:
    """The installed package is used, not the checkout; it has the gallery, its jars and its pytest plugin."""
    asked = "import headwater.jobs as a, sys; print(a.__file__)"
    assert run(elsewhere / "python", "-c", asked, cwd=tmp_path).startswith(str(elsewhere.parent))
    jobs = [json.loads(line) for line in run(elsewhere / "headwater", "jobs", "--json", cwd=tmp_path).splitlines()]
    assert {"browser-stats-stateful", "user-sessions"} <= {job["name"] for job in jobs}
    jars = [
        json.loads(line)
        for line in run(elsewhere / "headwater", "jars", "--no-archive", "--json", cwd=tmp_path).splitlines()
    ]
    assert any(jar["name"].startswith("spark-sql-kafka") for jar in jars)
    told = run(elsewhere / "python", "-m", "pytest", "--fixtures", "-q", cwd=tmp_path)
    assert "scenario" in told


def test_it_reads_a_checkpoint(elsewhere: Path, corpus: Callable[[str], CorpusCheckpoint], tmp_path: Path) -> None:
    """A checkpoint is read, and its page is served with its style sheet, without the checkout."""
    place = str(corpus("aggregation-changelog").path)
    rows = run(elsewhere / "headwater", "state", place, "--json", cwd=tmp_path).splitlines()
    assert json.loads(rows[0])["operator_id"] == 0
    page = subprocess.Popen(
        [elsewhere / "headwater", "ui", place, "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert page.stdout is not None
        url = page.stdout.readline().strip()
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
    finally:
        page.send_signal(signal.SIGTERM)
        page.wait(240)
    assert answer.status == 200
    assert "aggregation-changelog" in text or "checkpoint" in text
    assert (SOURCE / "web/page.css").read_text().strip().splitlines()[0][:20] in text
