"""The watermark never goes back, neither from batch to batch nor from a batch to its commit.

A repartition is a batch without input, whose plan Spark copies from the batch before, watermark and all.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.log_entries import OffsetEntry
from headwater.core.finding import Finding
from headwater.core.times import iso_from_ms


def check(scene: Scene) -> Iterator[Finding]:
    highest, seen_in = 0, ""
    for path, watermark in _watermarks(scene):
        if watermark < highest:
            message = (
                f"has the watermark {iso_from_ms(watermark)}, {seen_in} had {iso_from_ms(highest)} already; "
                "windows that were closed could open again"
            )
            yield Finding("error", "watermark-backwards", path, message)
        if watermark >= highest:
            highest, seen_in = watermark, path


def _watermarks(scene: Scene) -> Iterator[tuple[str, int]]:
    for number in scene.logs.batch_ids:
        planned, done = scene.logs.offsets.get(number), scene.logs.commits.get(number)
        if planned and planned.watermark_ms is not None and not _is_repartition(scene, number, planned):
            yield scene.logs.offsets.path(number), planned.watermark_ms
        # Spark before 2.4 wrote no watermark into commits, and writes 0 where a query has none.
        if done and done.next_watermark_ms:
            yield scene.logs.commits.path(number), done.next_watermark_ms


def _is_repartition(scene: Scene, number: int, planned: OffsetEntry) -> bool:
    before = scene.logs.offsets.get(number - 1)
    return (
        before is not None
        and (before.sources, before.timestamp_ms) == (planned.sources, planned.timestamp_ms)
        and before.shuffle_partitions != planned.shuffle_partitions
    )
