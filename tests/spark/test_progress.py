"""Spark's progress reports as records: each source, its name, its records and its lag."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.checkpoint.record import OperatorWatermark, SourceProgress, parse_line
from headwater.spark.decoding import METRIC
from headwater.spark.progress import progress_record

JOINS = ["kafka-join", "join-hdfs", "offsets2-join", "named", "left-join-hdfs"]


@pytest.mark.parametrize("name", JOINS)
def test_sources_of_real_reports(name: str, corpus) -> None:
    """Each source has its description and its rows, which add up to those of the batch, and reads back as written."""
    for report in corpus(name).progress:
        record = progress_record(report)
        assert [source.id for source in record.sources] == ["0", "1"]
        assert [source.description for source in record.sources] == [one["description"] for one in report["sources"]]
        assert sum(source.records or 0 for source in record.sources) == record.input_rows
        assert parse_line(record.to_line()) == record


def report(*topics: str, **observed: tuple[int, int]) -> dict[str, Any]:
    """Return a report of a batch that read 10 records of each topic and left 5, with what each source observed."""
    return {
        "batchId": 3,
        "numInputRows": 10 * len(topics),
        "sources": [
            {
                "description": f"KafkaV2[Subscribe[{topic}]]",
                "endOffset": {topic: {"0": 10}},
                "latestOffset": f'{{"{topic}":{{"0":15}}}}',
                "numInputRows": 10,
            }
            for topic in topics
        ],
        "observedMetrics": {
            metric: {"records": records, "malformed": malformed} for metric, (records, malformed) in observed.items()
        },
    }


def counts(sources: tuple[SourceProgress, ...]) -> list[tuple[str | None, str | None, int | None, int | None]]:
    return [(source.id, source.name, source.records, source.malformed) for source in sources]


def test_named_sources() -> None:
    """Observations are matched with the sources by their topics; their malformed records add up."""
    made = report("ads", "clicked", **{f"{METRIC}_clicks": (9, 2), f"{METRIC}_ads": (8, 1), "others": (99, 99)})
    record = progress_record(made, uris={"clicks": "kafka://h:1/clicked", "ads": "kafka://h:1/ads"})
    assert counts(record.sources) == [("0", "ads", 8, 1), ("1", "clicks", 9, 2)]
    assert [source.lag_rows for source in record.sources] == [5, 5]
    assert (record.malformed, record.lag_rows) == (3, 10)


def test_unnamed_source() -> None:
    """A job with one source observes it without a name."""
    record = progress_record(report("ads", **{METRIC: (8, 1)}))
    assert counts(record.sources) == [("0", None, 8, 1)]
    assert record.malformed == 1


def test_observations_that_match_no_single_source() -> None:
    """The observations of a self-join are kept under their names; the sources have Spark's own counts."""
    made = report("ads", "ads", **{f"{METRIC}_left": (9, 2), f"{METRIC}_right": (8, 0)})
    record = progress_record(made, uris={"left": "kafka://h:1/ads", "right": "kafka://h:1/ads"})
    assert counts(record.sources) == [
        ("0", None, 10, None),
        ("1", None, 10, None),
        (None, "left", 9, 2),
        (None, "right", 8, 0),
    ]
    assert record.malformed == 2


def test_names_in_the_offset_log() -> None:
    """A source that is named in Spark has that name in the offset log, and needs no URI to be matched."""
    made = report("ads", "clicked", **{f"{METRIC}_clicks": (9, 2), f"{METRIC}_shown": (8, 1)})
    watermarks = (OperatorWatermark("clicks", "at", 1000, 5),)
    record = progress_record(made, source_ids=("shown", "clicks"), watermarks=watermarks)
    assert counts(record.sources) == [("shown", "shown", 8, 1), ("clicks", "clicks", 9, 2)]
    assert record.watermarks == watermarks


def test_program_of_another() -> None:
    """A query that observes nothing has Spark's own counts."""
    record = progress_record(report("ads", "clicked"))
    assert counts(record.sources) == [("0", None, 10, None), ("1", None, 10, None)]
    assert record.malformed == 0
