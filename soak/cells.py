"""The matrix of stories: a job with its mode and sink, a source, and a state store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headwater.jars.versions import TABLE_FORMATS
from soak import oracle
from soak.join_oracle import CLICKS, IMPRESSIONS, simulate_attribution
from soak.oracle import ExpectedBatch, Key, Value, simulate
from soak.records import milliseconds
from soak.watermarks import BatchInput

STATE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
LONG_STEPS = (7, 20, 45, 90)
ROCKSDB = f"{PROVIDERS}.RocksDBStateStoreProvider"
CHANGELOG = f"{STATE}.rocksdb.changelogCheckpointing.enabled"
STORES: dict[str, dict[str, str]] = {
    "changelog": {f"{STATE}.providerClass": ROCKSDB, CHANGELOG: "true"},
    "rocksdb": {f"{STATE}.providerClass": ROCKSDB, CHANGELOG: "false"},
    "hdfs": {f"{STATE}.providerClass": f"{PROVIDERS}.HDFSBackedStateStoreProvider"},
    "format2": {f"{STATE}.providerClass": ROCKSDB, CHANGELOG: "true", f"{STATE}.checkpointFormatVersion": "2"},
}
# Frequent snapshots and log compactions give rewinds more special cases to handle.
FREQUENT_SNAPSHOTS = {
    f"{STATE}.minDeltasForSnapshot": "2",
    f"{STATE}.maintenanceInterval": "500ms",
    "spark.sql.streaming.fileSource.log.compactInterval": "3",
    "spark.sql.streaming.fileSource.log.cleanupDelay": "0",
    "spark.sql.streaming.fileSink.log.compactInterval": "3",
    "spark.sql.streaming.fileSink.log.cleanupDelay": "0",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True)
class JobKind:
    """A gallery job in one mode, with functions that convert its rows and its state to the oracle's."""

    name: str
    mode: str
    sources: Mapping[str, str]
    """The kind of records of each source, by its name, in the order of Spark's offsets; a single source has no name."""
    expect: Callable[[Sequence[BatchInput]], list[ExpectedBatch]]
    sink_key: str
    row: Callable[[dict[str, Any]], tuple[Key, Value]]
    """Converts a row of the sink, with flattened structs (``window_start``), to a key and a value."""
    state_row: Callable[[dict[str, Any]], tuple[Key, Value]]
    var: str | None = None
    custom_state: bool = False
    table: str = ""
    """The name of the static table that the job joins, which changes during a story."""
    file: Path | None = None
    """The file of the job, if it is not in the gallery."""
    steps: tuple[int, ...] = (3, 7, 15, 40)
    """The minutes between feeds; long ones let the watermark pass rows that wait for an hour."""

    @property
    def reference(self) -> str:
        """The job as ``headwater run`` takes it."""
        return f"{self.file}:JOB" if self.file else self.name


def _stats_row(row: dict[str, Any]) -> tuple[Key, Value]:
    window = milliseconds(row["window_start"]), milliseconds(row["window_end"])
    return (row.get("browser"), *window), (row["count"], milliseconds(row["last_event_time_in_window"]))


def _stats_state(row: dict[str, Any]) -> tuple[Key, Value]:
    key, window = row["key"], row["key"]["window"]
    value = row["value"]["count"], milliseconds(row["value"]["max"])
    return (key["browser"], milliseconds(window["start"]), milliseconds(window["end"])), value


def _event_row(row: dict[str, Any]) -> tuple[Key, Value]:
    return (row["User"], milliseconds(row["event_time"])), ()


def _stats(mode: str, emits: str) -> JobKind:
    expect = partial(simulate, oracle.browser_stats(emits))
    return JobKind("browser-stats-stateful", mode, {"": "visit"}, expect, "browser,window", _stats_row, _stats_state)


def _orders(mode: str, emits: str) -> JobKind:
    return JobKind(
        "order-status",
        mode,
        {"": "order"},
        partial(simulate, oracle.order_status(emits)),
        "order_status",
        lambda row: ((row.get("order_status"),), (row["count"],)),
        lambda row: ((row["key"]["order_status"],), (row["value"]["count"],)),
    )


DEDUPLICATED = JobKind(
    "deduplicated-events",
    "append",
    {"": "event"},
    partial(simulate, oracle.deduplicated_events()),
    "User,event_time",
    _event_row,
    lambda row: _event_row(row["key"]),
)
TOTALS = JobKind(
    "running-totals",
    "update",
    {"": "purchase"},
    partial(simulate, oracle.running_totals()),
    "user",
    lambda row: ((row["user"],), (row["total"],)),
    lambda row: ((row["key"]["user"],), (row["value"]["total"],)),
    var="total",
    custom_state=True,
)


def _sales_row(row: dict[str, Any]) -> tuple[Key, Value]:
    window = milliseconds(row["window_start"]), milliseconds(row["window_end"])
    return (row["category"], *window), (row["units"], row["revenue"])


def _sales_state(row: dict[str, Any]) -> tuple[Key, Value]:
    window = row["key"]["window"]
    key = row["key"]["category"], milliseconds(window["start"]), milliseconds(window["end"])
    return key, tuple(row["value"].values())


def _sales(mode: str, emits: str) -> JobKind:
    expect = partial(simulate, oracle.enriched_sales(emits))
    return JobKind(
        "enriched-sales",
        mode,
        {"items": "item"},
        expect,
        "category,window",
        _sales_row,
        _sales_state,
        table="products",
        steps=LONG_STEPS,
    )


def _attributed_row(row: dict[str, Any]) -> tuple[Key, Value]:
    clicked = row.get("clicked_at")
    times = milliseconds(row["shown_at"]), None if clicked is None else milliseconds(clicked)
    return (row.get("impression"), row.get("ad"), *times), ()


def _attributed_state(row: dict[str, Any]) -> tuple[Key, Value]:
    store, key, value = row["store"], (row["store"], row["key"]["field0"]), row["value"]
    if store.endswith("keyToNumValues"):
        return key, (value["value"],)
    moment = value["shown_at" if store.startswith("left") else "clicked_at"]
    return key, (value.get("ad"), milliseconds(moment), value["matched"])


ATTRIBUTION = JobKind(
    "ad-attribution",
    "append",
    {IMPRESSIONS: "impression", CLICKS: "click"},
    simulate_attribution,
    "impression",
    _attributed_row,
    _attributed_state,
    steps=LONG_STEPS,
)
UNITED = JobKind(
    "united-visits",
    "update",
    {"web": "visit", "app": "visit"},
    partial(simulate, oracle.browser_stats("changed", "web", "app")),
    "browser,window",
    _stats_row,
    _stats_state,
    file=Path(__file__).with_name("united_visits.py"),
)
JOBS_AND_SINKS = [
    (_stats("update", "changed"), "kafka"),
    (_stats("update", "changed"), "postgresql"),
    (_stats("append", "closed"), "files"),
    (DEDUPLICATED, "files"),
    (DEDUPLICATED, "postgresql"),
    (TOTALS, "kafka"),
    (TOTALS, "postgresql"),
    (_orders("update", "changed"), "kafka"),
    (_orders("complete", "all"), "postgresql"),
    (ATTRIBUTION, "files"),
    (ATTRIBUTION, "kafka"),
    (_sales("append", "closed"), "files"),
    (_sales("update", "changed"), "postgresql"),
    (UNITED, "kafka"),
    (_stats("append", "closed"), "delta"),
    (_stats("update", "changed"), "delta"),
    (DEDUPLICATED, "delta"),
    (TOTALS, "delta"),
    (_orders("complete", "all"), "delta"),
    (_stats("append", "closed"), "iceberg"),
    (DEDUPLICATED, "iceberg"),
    (_orders("complete", "all"), "iceberg"),
]


@dataclass(frozen=True)
class Cell:
    """One combination of the matrix."""

    job: JobKind
    source: str
    sink: str
    store: str

    @property
    def name(self) -> str:
        return f"{self.job.name} ({self.job.mode}) {self.source} to {self.sink}, {self.store}"

    @property
    def uses_kafka(self) -> bool:
        return "kafka" in {self.source, self.sink}

    @property
    def sink_is_rewound(self) -> bool:
        """Whether a rewind removes the rows of undone batches from the sink."""
        return self.sink in {"files", *TABLE_FORMATS}


CELLS = [
    Cell(job, source, sink, store)
    for store in STORES
    for source in ("files", "kafka")
    for job, sink in JOBS_AND_SINKS
    if not (job.custom_state and store == "hdfs")  # Spark does not support custom state there
]
STRIDE = 29  # coprime to the number of cells, so that consecutive seeds differ and all cells get their turn


def table_formats_on(spark: str) -> list[str]:
    """Return the formats that have a release for a version of Spark, such as 4.2 or 4.2.1."""
    version = ".".join(spark.split(".")[:2])
    return [name for name, releases in TABLE_FORMATS.items() if version in releases]


def has_format_2(spark: str) -> bool:
    """Return whether a version of Spark reads its own snapshots of checkpoint format 2 after a restart."""
    return not spark.startswith("4.0")


def cells_on(spark: str) -> list[Cell]:
    """Return the combinations that a version of Spark can run."""
    missing = set(TABLE_FORMATS) - set(table_formats_on(spark))
    cells = [cell for cell in CELLS if cell.sink not in missing and (cell.store != "format2" or has_format_2(spark))]
    # PySpark has transformWithState since 4.1.
    return [cell for cell in cells if not cell.job.custom_state] if spark.startswith("4.0") else cells


def cell_for_seed(seed: int, spark: str) -> Cell:
    cells = cells_on(spark)
    return cells[seed * STRIDE % len(cells)]
