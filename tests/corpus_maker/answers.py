"""The results of Spark's own readers: every operator, store and variable, as of every committed batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

MICROSECONDS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def rows_as_json(frame: Any, options: dict[str, str] | None = None) -> list[str]:
    """Return each row as Spark's `to_json` prints it, nulls included, sorted.

    Top-level columns whose type `to_json` rejects are converted with `CAST(... AS STRING)`.
    """
    asked = {"ignoreNullFields": "false", **(options or {})}
    try:
        chosen = frame.select(F.to_json(F.struct("*"), asked).alias("row"))
    except Exception as refusal:
        if "UNSUPPORTED" not in str(refusal) and "DATATYPE" not in str(refusal):
            raise
        columns = [_castable(field) for field in frame.schema.fields]
        chosen = frame.select(F.to_json(F.struct(*columns), asked).alias("row"))
    return sorted(row["row"] for row in chosen.collect())


def _castable(field: Any) -> Any:
    column = F.col(f"`{field.name}`")
    return column if field.dataType.typeName() != "struct" else column.cast("string").alias(field.name)


def metadata_rows(spark: Any, checkpoint: Path) -> list[dict[str, Any]]:
    """Return the rows of Spark's `state-metadata` source."""
    frame = spark.read.format("state-metadata").load(str(checkpoint))
    return [json.loads(row) for row in rows_as_json(frame)]


def note_session_windows(checkpoint: Path) -> None:
    """Write the operator metadata of 4.0 for a session window of 3.5, which had none.

    Nothing else records that the first column of its keys is a prefix, and Spark's reader fails without it.
    """
    partitions = sum(entry.name.isdigit() for entry in (checkpoint / "state/0").iterdir())
    store = {"storeName": "default", "numColsPrefixKey": 1, "numPartitions": partitions}
    operator = {"operatorId": 0, "operatorName": "sessionWindowStateStoreSaveExec"}
    noted = checkpoint / "state/0/_metadata/metadata"
    noted.parent.mkdir()
    noted.write_text("v1\n" + json.dumps({"operatorInfo": operator, "stateStoreInfo": [store]}), "utf-8")


def state_answers(spark: Any, checkpoint: Path, precise: bool) -> list[dict[str, Any]]:
    """Return the result of every possible query on Spark's `statestore` source, errors included."""
    _ = spark.streams.active  # its readers need a coordinator that only this starts
    metadata = metadata_rows(spark, checkpoint) or _operators_by_their_folders(checkpoint / "state")
    _name_the_partitions(checkpoint / "offsets", metadata[0]["numPartitions"])
    questions = list(_questions(metadata))
    batches = sorted(int(entry.name) for entry in (checkpoint / "commits").iterdir() if entry.name.isdigit())
    return [_ask(spark, checkpoint, batch, question, precise) for batch in batches for question in questions]


def _operators_by_their_folders(state: Path) -> list[dict[str, Any]]:
    """Return what `state-metadata` would show; Spark 3.5 wrote no operator metadata."""
    found = []
    for operator in sorted(state.iterdir()):
        partitions = sorted(entry for entry in operator.iterdir() if entry.name.isdigit())
        stores = sorted(entry.name for entry in partitions[0].iterdir() if "-key" in entry.name) or ["default"]
        name = "symmetricHashJoin" if len(stores) > 1 else "unknown"
        known = {"operatorId": int(operator.name), "operatorName": name, "numPartitions": len(partitions)}
        found += [{**known, "stateStoreName": store} for store in stores]
    return found


def _name_the_partitions(offsets: Path, partitions: int) -> None:
    """Add the number of partitions, which the state reader needs and version 2 of the offset log does not record."""
    for entry in offsets.iterdir():
        version, _, rest = entry.read_text("utf-8").partition("\n") if entry.name.isdigit() else ("", "", "")
        if version == "v2":
            settings, _, sources = rest.partition("\n")
            named = json.loads(settings)
            named["conf"]["spark.sql.shuffle.partitions"] = str(partitions)
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
            entry.write_text(f"{version}\n{json.dumps(named)}\n{sources}", "utf-8")


def _questions(metadata: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for row in metadata:
        operator = {"operatorId": str(row["operatorId"])}
        properties = json.loads(row.get("operatorProperties") or "null") or {}
        variables = properties.get("stateVariables") or []
        if variables:
            for variable in variables:
                name = variable["stateName"]
                if not name.startswith("$"):
                    yield {**operator, "stateVarName": name}
            if properties.get("timeMode") in {"EventTime", "ProcessingTime"}:
                yield {**operator, "readRegisteredTimers": "true"}
        else:
            yield {**operator, "storeName": row["stateStoreName"]}
    for joined in sorted({row["operatorId"] for row in metadata if row["operatorName"] == "symmetricHashJoin"}):
        for side in ("left", "right"):
            yield {"operatorId": str(joined), "joinSide": side}


def _ask(spark: Any, checkpoint: Path, batch: int, question: dict[str, str], precise: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "batch_id": batch,
        "operator_id": int(question["operatorId"]),
        "store_name": question.get("storeName"),
        "join_side": question.get("joinSide"),
        "state_var": question.get("stateVarName"),
        "timers": "readRegisteredTimers" in question,
    }
    try:
        frame = spark.read.format("statestore").options(batchId=str(batch), **question).load(str(checkpoint))
        if "joinSide" in question:
            frame = _without_hidden_columns(frame)
        answer["schema"] = json.loads(frame.schema.json())
        answer["rows"] = rows_as_json(frame)
        if precise:
            answer["precise_rows"] = rows_as_json(frame, MICROSECONDS)
    except Exception as refusal:
        answer["error"] = _reason(refusal)
    return answer


def _without_hidden_columns(frame: Any) -> Any:
    """Return one side of a join without the column that its schema lacks, on which `to_json` fails."""
    fields = [F.col(f"value.`{field.name}`") for field in frame.schema["value"].dataType.fields]
    return frame.select("key", F.struct(*fields).alias("value"), "partition_id")


def _reason(refusal: BaseException) -> str:
    lines = [line.strip() for line in str(refusal).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (causes[-1] if causes else told[0])[:300]
