"""The pictures of the documentation show what the jobs emit."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import concept_batches  # noqa: E402  it is a script, not a module of the package
import draw_concepts  # noqa: E402

IMAGES = ROOT / "docs" / "images"
RECORDED = concept_batches.RECORDED.read_text("utf-8")
IMAGE = re.compile(r"!\[([^]]*)\]\(([^)]+\.svg)\)")


@pytest.mark.parametrize("name", draw_concepts.PICTURES)
def test_a_picture_is_drawn_from_the_recorded_batches(name: str) -> None:
    """The committed picture is the one that the script draws from the recorded batches."""
    drawn = draw_concepts.draw(RECORDED)[name]
    assert (IMAGES / name).read_text("utf-8") == drawn, "run python scripts/draw_concepts.py"


@pytest.mark.parametrize("name", draw_concepts.PICTURES)
def test_a_picture_is_accessible(name: str) -> None:
    """A picture has a title and a description, and the pages that embed it give it an alternative text."""
    svg = ET.fromstring((IMAGES / name).read_text("utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    assert svg.findtext(f"{space}title")
    assert svg.findtext(f"{space}desc")
    embedded = [
        alternative
        for page in (ROOT / "docs").rglob("*.md")
        for alternative, target in IMAGE.findall(page.read_text("utf-8"))
        if (page.parent / target).resolve() == IMAGES / name
    ]
    assert embedded, "no page shows the picture"
    assert all(len(alternative) > 40 for alternative in embedded)


@pytest.mark.slow
def test_the_recorded_batches_are_those_of_the_jobs(headwater_spark: SparkSession, tmp_path: Path) -> None:
    """The jobs, run on the golden inputs, read, drop, store and emit what is recorded."""
    runs = concept_batches.collect(headwater_spark, tmp_path)
    assert concept_batches.as_json(runs) == RECORDED, "run python scripts/concept_batches.py"
