"""Flows of declarative pipelines: found, named, and read, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker_support import run_here
from headwater.checkpoint.flow_record import known_tables
from headwater.checkpoint.local_tree import LocalTree
from headwater.checkpoint.pipelines import Flow, flow_at, open_pipeline, short_names, storage_of_spec, stream_names
from headwater.checkpoint.record import read_job_record
from headwater.core.errors import CheckpointUnreadable
from pipelines.trees import DATABASES, checkpoint_of, table_folder, unpack

CATALOG = ("spark_catalog", "default")


def test_a_flow_has_the_shortest_name_that_no_other_flow_could_have() -> None:
    """A flow with the name of its table is called like the table; more parts of the name resolve a conflict."""
    flows = [
        Flow((*CATALOG, "sales"), "sales"),
        Flow((*CATALOG, "visits"), "visits"),
        Flow(("spark_catalog", "web", "visits"), "visits"),
        Flow((*CATALOG, "all"), "backfill"),
    ]
    assert list(short_names(flows)) == ["backfill", "default.visits", "sales", "web.visits"]


@pytest.mark.parametrize(
    ("location", "storage"),
    [
        ("/data/storage/_checkpoints/c/d/t/f/3", "/data/storage"),
        ("s3://bucket/shop/_checkpoints/c/d/t/f/3/", "s3://bucket/shop"),
        ("_checkpoints/c/d/t/f/3", "."),
        ("/_checkpoints/c/d/t/f/3", "/"),
    ],
)
def test_a_checkpoint_of_a_flow_is_known_by_its_location(location: str, storage: str) -> None:
    """The storage folder, the table and the flow are in the path."""
    assert flow_at(location) == (storage, Flow(("c", "d", "t"), "f", 3))


@pytest.mark.parametrize("location", ["/data/_checkpoints/visits", "/data/table/_checkpoints/a/b", "/c/d/t/f/0"])
def test_other_checkpoints_are_not_flows(location: str) -> None:
    """A folder _checkpoints may belong to a Delta table or to a user's own program."""
    assert flow_at(location) is None


def test_checkpoints_from_before_a_full_refresh_are_left_out() -> None:
    """Of several numbers the highest is in use; pipelines below a folder are named by their storage folder."""
    paths = [
        "jobs/visits",
        "shop/_checkpoints/c/d/sales/sales/2",
        "shop/_checkpoints/c/d/sales/sales/10",
        "_checkpoints/c/d/t/t/0",
    ]
    assert stream_names(paths) == {"jobs/visits": "jobs/visits", paths[2]: "shop:sales", paths[3]: "t"}


@pytest.mark.parametrize(
    "line",
    ["storage: file:///a/b", "storage:   file:///a/b   # here", "storage: 'file:///a/b'", 'storage: "file:///a/b" '],
)
def test_a_spec_names_the_storage_folder(tmp_path: Path, line: str) -> None:
    """Quotes and comments are those of YAML; a field of that name inside another one is not it."""
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(f"name: x\nconfiguration:\n  storage: other\n{line}\nlibraries: []\n")
    assert storage_of_spec(spec) == "file:///a/b"


def test_a_spec_without_storage_is_refused(tmp_path: Path) -> None:
    """The error says what the file should have."""
    spec = tmp_path / "other.yml"
    spec.write_text("name: x\n")
    with pytest.raises(CheckpointUnreadable) as refused:
        open_pipeline(str(spec))
    assert refused.value.code == "bad-pipeline-spec"


@pytest.fixture(params=["files", "delta"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


def test_commands_on_a_pipeline_name_its_flows(home: Path) -> None:
    """log shows a line per flow and what feeds what; fsck checks each with its table."""
    for name in (home / "storage", home / "spark-pipeline.yml"):
        lines = [json.loads(line) for line in run_here("log", name, "--json").stdout.splitlines()]
        assert sorted(line["name"] for line in lines) == ["big_sales", "sales", "totals"]
        assert {fed["name"] for line in lines for fed in line["feeds"]} == {"big_sales", "totals"}
    checked = run_here("fsck", home / "storage")
    assert checked.returncode == 0, checked.stderr
    assert {line.partition(":")[0] for line in checked.stdout.splitlines()} == {"big_sales", "sales", "totals"}


def test_fsck_compares_a_flow_with_its_table(home: Path) -> None:
    """A table that lacks what its flow has committed is an error, although nothing recorded where it is."""
    table = table_folder(home, "sales")
    log = table / "_delta_log" if (table / "_delta_log").is_dir() else table / "_spark_metadata"
    newest = max(file for file in log.iterdir() if file.suffix in ("", ".json") and file.is_file())
    newest.unlink()
    found = run_here("fsck", home / "storage:sales", "--json")
    assert found.returncode == 1
    assert [json.loads(line) for line in found.stdout.splitlines()]


def test_a_flow_is_a_checkpoint_for_every_command(home: Path) -> None:
    """PIPELINE:FLOW works with the storage folder and the spec, and by the longer names of the flow."""
    database = DATABASES["delta" if (table_folder(home, "sales") / "_delta_log").exists() else "files"]
    answers = [
        run_here("state", f"{pipeline}:{flow}", "--at", "1", "--json").stdout
        for pipeline in (home / "storage", home / "spark-pipeline.yml")
        for flow in ("totals", f"{database}.totals", f"spark_catalog.{database}.totals")
    ]
    assert len(set(answers)) == 1
    assert json.loads(answers[0].splitlines()[0])["key"]["window"]["start"].startswith("2026-07-01T10:")
    changed = run_here("diff", f"{home}/storage:totals", 1, "HEAD", "--json")
    assert changed.returncode == 0 and changed.stdout


def test_an_unknown_flow_and_a_pipeline_without_one_are_refused(home: Path) -> None:
    """The errors list the flows."""
    unknown = run_here("state", f"{home}/storage:nothing")
    assert "error[no-flow]" in unknown.stderr and "big_sales, sales, totals" in unknown.stderr
    whole = run_here("state", home / "storage")
    assert "error[not-a-checkpoint]" in whole.stderr and f"{home}/storage:big_sales" in whole.stderr


def test_tables_are_found_where_other_flows_have_read_them(tmp_path: Path) -> None:
    """The warehouse need not be beside the storage folder if a flow reads another flow's files in it."""
    home = unpack("files", tmp_path / "home")
    elsewhere = home / "elsewhere"
    (home / "spark-warehouse").rename(elsewhere)
    for log in checkpoint_of(home, "totals").joinpath("sources/0").iterdir():
        log.write_text(log.read_text().replace("spark-warehouse", "elsewhere"))
    places = known_tables(str(home / "storage"))
    assert {place.folder for place in places.values()} == {f"{elsewhere}/{t}" for t in ("sales", "big_sales", "totals")}


def test_a_delta_table_is_recognized_after_its_first_commit_was_removed(tmp_path: Path) -> None:
    """Delta removes old commits; the checksum of the newest one has the table's id as well."""
    home = unpack("delta", tmp_path)
    before = known_tables(str(home / "storage"))
    (table_folder(home, "sales") / "_delta_log" / f"{0:020d}.json").unlink()
    assert known_tables(str(home / "storage")) == before


def test_sources_of_a_flow_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Source 10 follows source 9, not source 1."""
    path = checkpoint_of(unpack("files", tmp_path), "totals")
    for log in path.joinpath("offsets").iterdir():
        log.unlink()
    conf = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    path.joinpath("offsets/0").write_text("\n".join(["v1", conf, *['{"logOffset":0}'] * 12]))
    _, *others = read_job_record(LocalTree(path)).source_order
    assert others == [str(number) for number in range(1, 12)]
