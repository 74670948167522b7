"""Every checkpoint of the corpus by name: each operator on each state store, and the variations of them."""

from __future__ import annotations

from dataclasses import replace

from . import feeds, queries
from .case import STORES, Case
from .variations import variations

_EVENTS = {"events": feeds.events()}
_ADS = feeds.shown_and_clicked()
_ROCKSDB_STORES = tuple(store for store in STORES if store != "hdfs")


def cases() -> list[Case]:
    """The corpus that the current Spark writes."""
    return _with_names_of_their_own([*operators_by_store(), *variations()])


def cases_of_other_versions(version: tuple[int, int]) -> list[Case]:
    """The small set that an older or newer Spark writes; names begin with its version."""
    wanted = {
        f"{operator}-{store}"
        for operator in ("aggregation", "session", "dedup", "join")
        for store in ("hdfs", "changelog")
    }
    wanted |= {"aggregation-rocksdb", "aggregation-format2", "pandas-changelog", "custom-rocksdb", "custom-changelog"}
    if version >= (4, 3):
        chosen = [case for case in cases() if case.name in wanted | {"join4", "named", "offsets2-join"}]
        chosen += cases_of_newer_versions()
    else:
        chosen = [
            # the only form of custom state that 4.0 has
            replace(case, query=queries.custom_in_pandas, since=(4, 0)) if case.query is queries.custom else case
            for case in operators_by_store()
            if case.name in wanted
        ]
    return _with_names_of_their_own(
        [replace(case, name=f"spark{version[0]}.{version[1]}-{case.name}") for case in chosen if case.since <= version]
    )


def cases_of_newer_versions() -> list[Case]:
    """What Spark can do since 4.3: stateful queries with the real-time trigger, and sink names on checkpoint format 2."""
    evolution, streaming = "spark.sql.streaming.queryEvolution", "spark.sql.streaming"
    names = {
        f"{evolution}.enableSourceEvolution": "true",
        f"{evolution}.enableSinkEvolution": "true",
        f"{streaming}.offsetLog.formatVersion": "2",
    }
    real_time = Case(
        "real-time",
        "real-time trigger, windowed counts, Kafka to Kafka",
        queries.aggregation_as_json,
        _EVENTS,
        "update",
        "format2",
        source="kafka",
        sink="kafka",
        real_time="2 seconds",
        conf={f"{streaming}.realTimeMode.minBatchDuration": "1000"},
        since=(4, 3),
    )
    return [
        real_time,
        replace(
            real_time,
            name="real-time-stateless",
            description="real-time trigger without state: asynchronous logs by default",
            query=queries.stateless_as_json,
        ),
        Case(
            "named-join4-format2",
            "named sources and sink on checkpoint format 2: commit log 3 with state ids; join state format 4",
            queries.inner_join,
            _ADS,
            "append",
            "format2",
            named=True,
            conf={**names, f"{streaming}.join.stateFormatVersion": "4"},
            since=(4, 3),
        ),
    ]


def _with_names_of_their_own(found: list[Case]) -> list[Case]:
    names = [case.name for case in found]
    assert len(set(names)) == len(names), f"two checkpoints of one name: {sorted(names)}"
    return found


def operators_by_store() -> list[Case]:
    made: list[Case] = []
    for store in STORES:
        since = {"format2": (4, 0), "changelog": (3, 5)}.get(store, (3, 4))
        made += [
            Case(
                f"aggregation-{store}",
                "windowed counts per user, update mode, watermark 10 minutes",
                queries.aggregation,
                _EVENTS,
                "update",
                store,
                since=since,
            ),
            Case(
                f"session-{store}",
                "session windows per user, append mode",
                queries.session,
                _EVENTS,
                "append",
                store,
                since=since,
            ),
            Case(
                f"dedup-{store}",
                "dropDuplicates on user and event time with a watermark",
                queries.dedup,
                _EVENTS,
                "append",
                store,
                since=since,
            ),
            Case(f"join-{store}", "inner stream-stream join", queries.inner_join, _ADS, "append", store, since=since),
            Case(
                f"pandas-{store}",
                "applyInPandasWithState with event-time timeouts",
                queries.pandas_state,
                _EVENTS,
                "update",
                store,
                since=since,
            ),
            Case(
                f"windows-{store}",
                "two stateful operators: windowed counts, then windows over them",
                queries.window_then_window,
                _EVENTS,
                "append",
                store,
                since=since,
            ),
        ]
    made += [
        Case(
            f"custom-{store}",
            "transformWithState: value, list and map state, event-time timers",
            queries.custom,
            _EVENTS,
            "update",
            store,
            since=(4, 1),
        )
        for store in _ROCKSDB_STORES
    ]
    return made
