"""The documentation is one site, complete, and made without the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""(?:<script[^>]+src=|<img[^>]+src=|<link[^>]+rel=["']?stylesheet["']?[^>]+href=)["']?(https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it. A broken link or a page that is in no menu ends the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        # Whoever asks for a package by the network gets nothing.
        env={
            **os.environ,
            "NO_MKDOCS_2_WARNING": "1",
            "https_proxy": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_built(site: Path) -> None:
    """Each page under docs/ is a page of the site, with the words that it begins with."""
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        built = built.with_name("index.html") if page.stem == "README" else built
        assert built.exists(), page
        title = page.read_text().splitlines()[0].lstrip("# ").replace("`", "").split("&")[0].split("'")[0]
        text = re.sub(r"<[^>]+>", "", built.read_text())
        assert title in text, page


def test_nothing_is_fetched(site: Path) -> None:
    """A reader without the network sees the whole page: no script, font or picture comes from elsewhere."""
    for page in site.rglob("*.html"):
        assert not FETCHED.search(page.read_text()), page
