"""``python cluster_state_program.py MASTER FOLDER`` runs custom state on a cluster and prints the output as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from headwater.spark.session import start_session


class WhoIsThere(StatefulProcessor):
    """Emits the module of the client that exchanges its state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total BIGINT")
        self.client = type(handle._statefulProcessorApiClient).__module__

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        total = (self.total.get() or (0,))[0] + sum(1 for _ in rows)
        self.total.update((total,))
        yield Row(key=key[0], total=total, client=self.client)


def run_on_cluster(master: str, folder: Path) -> None:
    """Run two batches on the cluster and print the output."""
    spark = start_session("who", master=master, conf={"spark.executor.memory": "512m"}, jars=(), log=folder / "log")
    for _ in range(2):
        spark.range(20).coalesce(1).write.mode("append").parquet(str(folder / "in"))
    stream = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    shape = "key BIGINT, total BIGINT, client STRING"
    output: list[tuple[Any, ...]] = []
    processed = stream.groupBy("id").transformWithState(WhoIsThere(), shape, "Update", "None")
    writer = processed.writeStream.foreachBatch(lambda frame, _: output.extend(map(tuple, frame.collect())))
    writer = writer.outputMode("update").option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(output))
    spark.stop()


if __name__ == "__main__":
    run_on_cluster(sys.argv[1], Path(sys.argv[2]))
