"""Spark's own ``statestore`` reader, for state files that Headwater cannot read itself. It runs in a separate process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.checkpoint.locate import open_files
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.core.ids import StoreRef
from headwater.jars.java import require_java
from headwater.statefiles.answer import StateAnswer
from headwater.statefiles.sqltypes import Struct, distinct, parse_type

_JOIN = "symmetricHashJoin"
_JOIN_STORES = ("keyToNumValues", "keyWithIndexToValue"), ("keyWithTsToValues", "tsWithKey")


def answers_from_spark(location: str, batch: int, ref: StoreRef, *, one: bool) -> list[StateAnswer]:
    """Return the state as of a batch for every store and variable that matches, as Spark reads it."""
    require_java()
    with tempfile.TemporaryDirectory(prefix="headwater-spark-state-") as folder:
        request = {"location": location, "batch": batch, **asdict(ref)}
        done = subprocess.run(
            [sys.executable, "-m", "headwater.spark.state_oracle", json.dumps(request), folder],
            capture_output=True,
            text=True,
            check=False,
        )
        index = Path(folder) / "index.json"
        if done.returncode != 0 or not index.exists():
            raise CheckpointUnreadable(
                "spark-cannot-read",
                f"Spark cannot read the state at {location} as of batch {batch}",
                evidence={"reason": _last_error_line(done.stderr)},
            )
        answers = [_answer(entry, Path(folder)) for entry in json.loads(index.read_text("utf-8"))]
    if not answers:
        raise UsageProblem("no-such-state", "no state store or variable matches --operator, --store and --var")
    if one and len(answers) > 1:
        names = ", ".join(str(answer.var or answer.store) for answer in answers)
        raise UsageProblem("which-state", "there are several stores or variables", evidence={"choose one of": names})
    return answers


def _last_error_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    return lines[-1][:300] if lines else "the process printed no error"


def _answer(entry: dict[str, Any], folder: Path) -> StateAnswer:
    types = parse_type(entry["schema"])
    assert isinstance(types, Struct)
    with pa.OSFile(str(folder / entry["file"])) as source:
        table = pa.ipc.open_file(source).read_all()
    return StateAnswer(entry["operator_id"], entry["store"], entry["var"], types, table)


def main() -> None:
    """Write one Arrow file per store or variable into a folder, and an index of the files."""
    parser = argparse.ArgumentParser()
    parser.add_argument("request", type=json.loads)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    from headwater.spark.session import (  # noqa: PLC0415  only this process needs Spark
        matching_checkpoint_format,
        start_session,
        stop_session,
    )

    # Spark refuses to read joins that were written with this setting unless it is set.
    conf = {"spark.sql.streaming.join.stateFormatV4.enabled": "true"}
    spark = start_session("headwater-state", master="local[2]", jars=(), conf=conf)
    try:
        _ = spark.streams.active  # starts the state store coordinator, which the reader needs
        files, batch = open_files(arguments.request["location"]), arguments.request["batch"]
        with matching_checkpoint_format(spark, files, batch):
            index = [
                _write_arrow(frame, number, about, arguments.folder)
                for number, (about, frame) in enumerate(_frames(spark, arguments.request))
            ]
        (arguments.folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    finally:
        stop_session(spark)


def _frames(spark: Any, request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    location, batch = request["location"], request["batch"]
    join_format = _join_format(location, batch)
    for row in spark.read.format("state-metadata").option("batchId", batch).load(location).collect():
        for store, var, options in _readable_parts(row, join_format):
            about = {"operator_id": row.operatorId, "store": store, "var": var}
            if _matches(about, request):
                reader = spark.read.format("statestore").option("batchId", batch)
                reader = reader.option("operatorId", row.operatorId).options(**options)
                yield about, reader.load(location)


def _matches(about: dict[str, Any], request: dict[str, Any]) -> bool:
    names = {"operator": about["operator_id"], "store": about["store"], "var": about["var"]}
    return all(request[name] is None or request[name] == value for name, value in names.items())


def _join_format(location: str, batch: int) -> str | None:
    entry = CheckpointLogs(open_files(location)).offsets.get(batch)
    return entry.conf.get("spark.sql.streaming.join.stateFormatVersion") if entry else None


def _readable_parts(row: Any, join_format: str | None) -> Iterator[tuple[str, str | None, dict[str, str]]]:
    """Yield each store and variable of an operator, with the reader's options for it."""
    variables = json.loads(row.operatorProperties or "{}").get("stateVariables", []) if row.operatorProperties else []
    for variable in variables:
        name, timers = variable["stateName"], variable["stateVariableType"] == "TimerState"
        yield row.stateStoreName, name, {"readRegisteredTimers": "true"} if timers else {"stateVarName": name}
    if variables:
        return
    if row.operatorName == _JOIN and row.stateStoreName == "default":
        for side in ("left", "right"):
            for kind in _JOIN_STORES[join_format == "4"]:
                yield f"{side}-{kind}", None, {"storeName": f"{side}-{kind}"}
    else:
        yield row.stateStoreName, None, {"storeName": row.stateStoreName}


def _write_arrow(frame: Any, number: int, about: dict[str, Any], folder: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F  # noqa: PLC0415  only this process needs Spark

    columns, schema = [], []
    for column in frame.schema.fields:
        # Arrow wants distinct names in a struct; ``distinct`` is what Headwater's own reader calls them.
        columns.append(F.col(f"`{column.name}`").cast(_readable_type(column.dataType, distinct)).alias(column.name))
        schema.append({**column.jsonValue(), "type": _readable_type(column.dataType).jsonValue()})
    table = frame.select(*columns).toArrow()
    name = f"{number}.arrow"
    with pa.OSFile(str(folder / name), "wb") as target, pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)
    return {**about, "file": name, "schema": {"type": "struct", "fields": schema}}


def _readable_type(data_type: Any, rename: Callable[[list[str]], list[str]] = list) -> Any:
    """Return the type with strings where Arrow or ``statefiles.sqltypes`` has no type, and with the fields renamed."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType  # noqa: PLC0415

    match data_type:
        case StructType():
            names = rename([field.name for field in data_type.fields])
            fields = zip(names, data_type.fields, strict=True)
            return StructType(
                [StructField(name, _readable_type(field.dataType, rename), field.nullable) for name, field in fields]
            )
        case ArrayType():
            return ArrayType(_readable_type(data_type.elementType, rename), data_type.containsNull)
        case MapType():
            key, value = (_readable_type(held, rename) for held in (data_type.keyType, data_type.valueType))
            return MapType(key, value, data_type.valueContainsNull)
    return StringType() if _is_unsupported(data_type) else data_type


def _is_unsupported(data_type: Any) -> bool:
    text = json.dumps(data_type.jsonValue())
    return any(name in text for name in ('"variant"', '"interval', "geometry", "geography", '"time('))


if __name__ == "__main__":
    main()
