"""The gallery: the list of jobs, their files and their pages."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_support import run_here
from headwater.jobs import gallery
from headwater.jobs.loading import gallery_names, load_job
from headwater.jobs.rules import check_job
from headwater.spark.prepared import check_only

FOLDER = Path(gallery.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "gallery"
SHORT = 80

PARAMETERS = {
    "ad-attribution": {"within": "1 hour", "watermark": "10 minutes"},
    "browser-stats-stateful": {"window": "5 minutes", "watermark": "20 minutes"},
    "browser-stats-stateless": {"window": "5 minutes"},
    "deduplicated-events": {"watermark": "30 minutes"},
    "enriched-sales": {"per": "category", "window": "15 minutes", "watermark": "1 hour"},
    "order-status": {"aggregate": True},
    "order-status-per-batch": {},
    "profit-per-id": {"window": "5 minutes"},
    "profit-per-window": {"window": "5 minutes"},
    "profit-sliding": {"window": "10 minutes", "slide": "5 minutes"},
    "retail-sales": {"per": "window", "window": "15 minutes", "watermark": "1 hour"},
    "retail-sales-bronze": {"scale": 1},
    "retail-sales-lakehouse": {"window": "15 minutes", "watermark": "1 hour"},
    "running-totals": {"form": "custom_state", "ttl": ""},
    "sliding-counts": {"window": "10 minutes", "slide": "5 minutes", "watermark": "30 minutes", "deduplicate": False},
    "user-sessions": {
        "form": "session_window",
        "gap": "30 minutes",
        "watermark": "10 minutes",
        "timeout": "event",
        "mode": "append",
    },
    "visits-windows-counter": {"window": "10 minutes", "watermark": "20 minutes"},
    "weekly-totals": {"form": "custom_state", "period": "7 days", "slide": "1 day"},
    "word-count": {},
}


def test_jobs_lists_the_gallery_with_its_parameters() -> None:
    """``headwater jobs`` shows every job, its parameters and their defaults, as text and as JSON."""
    listed = [json.loads(line) for line in run_here("jobs", "--json").stdout.splitlines()]
    assert {one["name"]: one["parameters"] for one in listed} == PARAMETERS
    assert all(one["about"] for one in listed)
    shown = run_here("jobs", "user-sessions").stdout
    assert "form=session_window, gap=30 minutes" in shown


@pytest.mark.parametrize("name", gallery_names())
def test_job_is_accepted(headwater_spark: SparkSession, name: str) -> None:
    """``headwater check`` accepts every job of the gallery."""
    check_job(load_job(name))
    check_only(headwater_spark, load_job(name))


@pytest.mark.parametrize("name", gallery_names())
def test_job_is_a_short_file_that_uses_the_public_api(name: str) -> None:
    """A job fits on a page or two and imports only Headwater's public API and the gallery's helpers."""
    text = (FOLDER / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= SHORT
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headwater"):
            assert node.module == "headwater" or node.module.startswith("headwater.jobs.gallery._")


@pytest.mark.parametrize("name", gallery_names())
def test_job_has_a_page(name: str) -> None:
    """Every job has a page that shows how to run it."""
    assert f"headwater run {name}" in (DOCS / f"{name}.md").read_text(encoding="utf-8")


def test_function_works_on_static_data(headwater_spark: SparkSession) -> None:
    """A job's function is an ordinary function of a DataFrame."""
    orders = headwater_spark.createDataFrame([(1, "NEW"), (2, "PAID"), (3, "NEW")], "order_id INT, order_status STRING")
    counted = load_job("order-status")(orders).collect()
    assert sorted((row["order_status"], row["count"]) for row in counted) == [("NEW", 2), ("PAID", 1)]
