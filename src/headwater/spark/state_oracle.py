"""Spark's own ``statestore`` reader, for state files that are not read natively. Runs in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.checkpoint.locate import open_files
from headwater.checkpoint.logs import CheckpointLogs
from headwater.core.errors import CheckpointUnreadable, UsageProblem
from headwater.jars.java import require_java
from headwater.statefiles.reader import StateAnswer
from headwater.statefiles.sqltypes import Struct, parse_type

_JOIN = "symmetricHashJoin"
_JOIN_STORES = ("keyToNumValues", "keyWithIndexToValue"), ("keyWithTsToValues", "tsWithKey")


def answers_from_spark(
    location: str, batch: int, *, operator: int | None, store: str | None, var: str | None, one: bool
) -> list[StateAnswer]:
    """What Spark says of every store and variable that the words fit, as of a batch."""
    require_java()
    with tempfile.TemporaryDirectory(prefix="headwater-spark-state-") as folder:
        asked = {"location": location, "batch": batch, "operator": operator, "store": store, "var": var}
        done = subprocess.run(
            [sys.executable, "-m", "headwater.spark.state_oracle", json.dumps(asked), folder],
            capture_output=True,
            text=True,
            check=False,
        )
        index = Path(folder) / "index.json"
        if done.returncode != 0 or not index.exists():
            raise CheckpointUnreadable(
                "spark-cannot-read",
                f"Spark cannot read the state at {location} as of batch {batch}",
                evidence={"Spark": _last_words(done.stderr)},
            )
        answers = [_answer(entry, Path(folder)) for entry in json.loads(index.read_text("utf-8"))]
    if not answers:
        raise UsageProblem("no-such-state", "no state store or variable fits these words")
    if one and len(answers) > 1:
        names = ", ".join(str(answer.var or answer.store) for answer in answers)
        raise UsageProblem("which-state", "there are several stores or variables", evidence={"there are": names})
    return answers


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", " "))]
    return lines[-1][:300] if lines else "nothing"


def _answer(entry: dict[str, Any], folder: Path) -> StateAnswer:
    types = parse_type(entry["schema"])
    assert isinstance(types, Struct)
    with pa.OSFile(str(folder / entry["file"])) as source:
        table = pa.ipc.open_file(source).read_all()
    return StateAnswer(entry["operator_id"], entry["store"], entry["var"], types, table)


def main() -> None:
    """Write an Arrow file for each answer into a folder, and an index of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("asked", type=json.loads)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    from headwater.spark.session import (  # noqa: PLC0415  only this process needs Spark
        in_its_format,
        start_session,
        stop_session,
    )

    # Without this Spark refuses to read what it wrote with it.
    conf = {"spark.sql.streaming.join.stateFormatV4.enabled": "true"}
    spark = start_session("headwater-state", master="local[2]", jars=(), conf=conf)
    try:
        _ = spark.streams.active  # Spark's reader needs a coordinator that only this starts
        with in_its_format(spark, open_files(arguments.asked["location"])):
            index = [
                _written(frame, number, about, arguments.folder)
                for number, (about, frame) in enumerate(_frames(spark, arguments.asked))
            ]
        (arguments.folder / "index.json").write_text(json.dumps(index), encoding="utf-8")
    finally:
        stop_session(spark)


def _frames(spark: Any, asked: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    join_format = _join_format(asked["location"], asked["batch"])
    for row in spark.read.format("state-metadata").option("batchId", asked["batch"]).load(asked["location"]).collect():
        for store, var, options in _questions(row, join_format):
            about = {"operator_id": row.operatorId, "store": store, "var": var}
            if _fits(about, asked):
                reader = spark.read.format("statestore").option("batchId", asked["batch"])
                reader = reader.option("operatorId", row.operatorId).options(**options)
                yield about, reader.load(asked["location"])


def _fits(about: dict[str, Any], asked: dict[str, Any]) -> bool:
    names = {"operator": about["operator_id"], "store": about["store"], "var": about["var"]}
    return all(asked[name] is None or asked[name] == held for name, held in names.items())


def _join_format(location: str, batch: int) -> str | None:
    entry = CheckpointLogs(open_files(location)).offsets.get(batch)
    return entry.conf.get("spark.sql.streaming.join.stateFormatVersion") if entry else None


def _questions(row: Any, join_format: str | None) -> Iterator[tuple[str, str | None, dict[str, str]]]:
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


def _written(frame: Any, number: int, about: dict[str, Any], folder: Path) -> dict[str, Any]:
    shown = _in_arrow_types(frame)
    table = shown.toArrow()
    name = f"{number}.arrow"
    with pa.OSFile(str(folder / name), "wb") as target, pa.ipc.new_file(target, table.schema) as writer:
        writer.write_table(table)
    return {**about, "file": name, "schema": shown.schema.jsonValue()}


def _in_arrow_types(frame: Any) -> Any:
    """Fields whose types Arrow, or our own schemas, do not know come as text."""
    from pyspark.sql import functions as F  # noqa: PLC0415  only this process needs Spark

    columns = []
    for column in frame.schema.fields:
        if column.dataType.typeName() != "struct" or not any(_odd(field.dataType) for field in column.dataType):
            columns.append(F.col(f"`{column.name}`"))
            continue
        held = F.col(f"`{column.name}`")
        fields = [
            (held[field.name].cast("string") if _odd(field.dataType) else held[field.name]).alias(field.name)
            for field in column.dataType.fields
        ]
        columns.append(F.struct(*fields).alias(column.name))
    return frame.select(*columns)


def _odd(kind: Any) -> bool:
    text = json.dumps(kind.jsonValue())
    return any(word in text for word in ('"variant"', '"interval', "geometry", "geography", '"time('))


if __name__ == "__main__":
    main()
