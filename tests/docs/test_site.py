"""The documentation site: complete, and built without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.services

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(
    r"""(?:<script[^>]+src=|<img[^>]+src=|<link[^>]+rel=["']?stylesheet["']?[^>]+href=)["']?(https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it. A broken link or a page without a menu entry fails the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        # Requests for packages over the network fail.
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
    """Each page under docs/ is a page of the site, and contains the title."""
    for page in (ROOT / "docs").rglob("*.md"):
        built = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        built = built.with_name("index.html") if page.stem == "README" else built
        assert built.exists(), page
        title = page.read_text().splitlines()[0].lstrip("# ").replace("`", "").split("&")[0].split("'")[0]
        text = re.sub(r"<[^>]+>", "", built.read_text())
        assert title in text, page


def test_nothing_is_fetched(site: Path) -> None:
    """Every page works offline: no script, font or picture is loaded from another host."""
    for page in site.rglob("*.html"):
        assert not FETCHED.search(page.read_text()), page
