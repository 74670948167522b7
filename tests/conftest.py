"""Fixtures that tests of several packages share."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from corpus_support import corpus
from versions_support import lacking

# Tests start many short-lived JVMs. For these the optimizing compiler does not pay off: without it they use 40 % less CPU.
# Without it, Java reserves so little memory for compiled code that Spark fills it and is interpreted from then on.
# Collections of garbage while classes are loaded and the heap is small do not pay off either.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
)
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:NewSize=256m -XX:OldSize=256m")

# Hundreds of processes import the same modules: they should find them compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts background jobs with Ctrl-C ignored, and every process inherits that from its parent.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests kill processes, not machines: nothing they write has to survive a power failure.
os.fsync = lambda handle: None

# A change is judged by the same examples each time. `make soak` draws new and more ones: HEADWATER_RANDOM_EXAMPLES=1.
# Nothing has a deadline: on a busy machine any example, and the generation of any, can take long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", patient, derandomize=True, max_examples=40)
settings.register_profile("random", patient)
settings.load_profile("random" if "HEADWATER_RANDOM_EXAMPLES" in os.environ else "repeatable")

__all__ = ["corpus"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report what an older PySpark lacks as skipped."""
    report = yield
    reason = lacking(call.excinfo.value) if call.excinfo and report.failed else None
    if reason:
        report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    return report


pytest_plugins = [
    "broker_support",
    "postgres_support",
    "registry_support",
    "s3_support",
    "scheduling_support",
    "spark_cluster_support",
]

# Fixtures that start Spark, a server or a browser. Tests that start one in a process of their own carry the marker.
SERVICE_FIXTURES = {"headwater_spark", "broker", "secured_broker", "postgres", "browser", "s3", "spark_cluster"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `make check` leaves out, and run their files first: no worker is left with a long one."""
    for item in items:
        if SERVICE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("services")
    long_files = {item.path for item in items if item.get_closest_marker("services")}
    items.sort(key=lambda item: item.path not in long_files)
