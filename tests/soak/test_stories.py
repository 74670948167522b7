"""The soak harness itself: the stories, the oracle and the ledger."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from corpus_support import CorpusCheckpoint
from lakehouse.iceberg_support import NAME, Lake

sys.path.insert(0, str(Path(__file__).parent.parent.parent))  # soak/ is next to src/

from soak.cells import ATTRIBUTION, CELLS, cell_for_seed, cells_on
from soak.join_oracle import CLICKS, IMPRESSIONS, simulate_attribution
from soak.lineage import Lineage, PlannedBatch, places, read_lineage
from soak.meeting import Host, Meeting
from soak.oracle import MINUTE_MS, ExpectedBatch, simulate
from soak.records import GENERATORS, START, Burst, milliseconds
from soak.sinks import LastWrites, read_delta_rows, read_iceberg_rows, table_rows_after
from soak.story import (
    ACTIONS,
    GROUP,
    Feed,
    Kill,
    KilledRun,
    Migrate,
    Outage,
    Repartition,
    Run,
    Seed,
    events_of_group,
    generate_story,
)
from soak.tables import ProductTable
from soak.watermarks import Arrival, BatchInput, follow_watermarks

from soak import ledger, oracle


def test_a_seed_gives_one_story() -> None:
    """The same seed gives the same actions and the same records, and consecutive seeds cover every cell of the matrix."""
    assert generate_story(7, "4.2") == generate_story(7, "4.2")
    for spark in ("4.0.5", "4.1", "4.2.0", "4.3"):
        cells = cells_on(spark)
        assert generate_story(7, spark) != generate_story(7 + len(cells), spark)
        assert len({cell_for_seed(seed, spark).name for seed in range(len(cells))}) == len(cells)
    sinks = [{cell.sink for cell in cells_on(spark)} for spark in ("4.1", "4.3")]
    assert sinks[0] - sinks[1] == {"delta", "iceberg"}
    for seed in range(50):
        story = generate_story(seed, "4.2")
        assert len(story.actions) == ACTIONS
        assert isinstance(story.actions[-1], Run)
    burst = Burst(seed=3, minute=5, count=40, late=0.3, malformed=0.3)
    for kind in GENERATORS:
        assert burst.records(kind, tombstones=True) == burst.records(kind, tombstones=True)


def test_spark_40_runs_no_story_in_checkpoint_format_2() -> None:
    """It cannot read its own snapshots of that format after a restart."""
    stories = [generate_story(seed, "4.0.5") for seed in range(200)]
    migrations = [action for story in stories for action in story.actions if isinstance(action, Migrate)]
    assert migrations
    assert not any(migration.checkpoint_format for migration in migrations)
    assert not any(story.cell.store == "format2" for story in stories)


def test_stories_of_a_group_meet_at_its_events() -> None:
    """All stories of a group have an action for each of its events at the same place, after a feed."""
    outages = 0
    for group in range(30):
        events = events_of_group(group)
        assert sum(isinstance(event, Kill) for event in events.values()) == 2
        outages += len(events) - 2
        for seed in ledger.seeds_of(group):
            actions = generate_story(seed, "4.2").actions
            for place, event in events.items():
                assert isinstance(actions[place - 1], Feed)
                expected = (KilledRun, Repartition, Seed) if isinstance(event, Kill) else (Outage,)
                assert isinstance(actions[place], expected)
            met = [place for place, action in enumerate(actions) if isinstance(action, KilledRun | Outage)]
            assert set(met) <= set(events)
            assert all(
                actions[place].kill_after_ms is None
                for place in range(ACTIONS)
                if place not in events and isinstance(actions[place], Repartition | Seed)
            )
    assert outages


def test_stories_meet_and_one_may_end() -> None:
    """An event happens when a share of the stories is ready; a story that fails no longer counts."""
    fork = multiprocessing.get_context("fork")
    pairs = [fork.Pipe() for _ in range(3)]
    ended: list[tuple[int, Any]] = []
    host = Host({ours: number for number, (ours, _) in enumerate(pairs)}, lambda *what: ended.append(what))
    happened = fork.Event()

    def attend(number: int) -> None:
        connection = pairs[number][1]
        if number == 2:
            connection.send({"outcome": "failed"})
            return
        with Meeting(connection).attended() as meeting:
            if number == 1:
                assert happened.wait(60)
            meeting.ready()
        connection.send({"outcome": "good"})

    processes = [fork.Process(target=attend, args=(number,)) for number in range(3)]
    for process in processes:
        process.start()
    host.hold(happened.set, quorum=0.5)
    host.wait_for_ends()
    assert sorted(ended, key=lambda one: one[0]) == [
        (0, {"outcome": "good"}), (1, {"outcome": "good"}), (2, {"outcome": "failed"}),
    ]  # fmt: skip
    for process in processes:
        process.join()


def test_stories_of_several_sources_feed_all_or_one_of_them() -> None:
    """Feeds of a join name one of its sources or none, and two sources with the same kind of records get different ones."""
    stories = [
        story for story in (generate_story(seed, "4.2") for seed in range(100)) if len(story.cell.job.sources) > 1
    ]
    only = {(story.cell.job.name, one.only) for story in stories for one in story.actions if isinstance(one, Feed)}
    assert only == {
        ("ad-attribution", "impressions"), ("ad-attribution", "clicks"), ("ad-attribution", ""),
        ("united-visits", "web"), ("united-visits", "app"), ("united-visits", ""),
    }  # fmt: skip
    web, app = (
        Burst(seed=3, minute=5, count=9).records("visit", tombstones=False, source=one) for one in ("web", "app")
    )
    assert [one.fields for one in web] != [one.fields for one in app]
    assert {one.source for one in web} == {"web"}


@pytest.mark.parametrize("kind", GENERATORS)
def test_decoded_records_are_the_json_of_their_fields(kind: str) -> None:
    """A record with fields is their JSON; a malformed record has no fields and fits on one line."""
    for record in Burst(seed=1, minute=0, count=300, malformed=0.5).records(kind, tombstones=True):
        if record.fields is not None:
            assert json.loads(record.data or b"") == record.fields
        elif record.data is not None:
            assert b"\n" not in record.data


def visit(browser: str, at: str) -> dict[str, object]:
    return {"userId": 1, "page": "/", "eventTime": f"2026-03-01T{at}:00.000Z", "browser": browser}


def test_the_oracle_by_hand() -> None:
    """The watermark of a batch closes windows in that batch, and makes records late in the next."""
    batches = [
        BatchInput(0, (Arrival("a", visit("F", "10:01")), Arrival("b", visit("F", "10:02")))),
        BatchInput(1, (Arrival("c", visit("F", "10:41")),)),
        # counted: this batch evicts by 10:21, but drops by the watermark before
        BatchInput(2, (Arrival("d", visit("F", "10:03")),)),
        BatchInput(3, (Arrival("e", visit("F", "10:04")),)),
    ]
    update, append = (simulate(oracle.browser_stats(emits), batches) for emits in ("changed", "closed"))
    first = ("F", milliseconds("2026-03-01T10:00:00Z"), milliseconds("2026-03-01T10:05:00Z"))
    assert [dict(batch.emitted.keys()).get(first, (0, 0))[0] for batch in update] == [2, 0, 3, 0]
    assert [dict(batch.emitted.keys()).get(first, (0, 0))[0] for batch in append] == [0, 0, 3, 0]
    assert [sorted(batch.late) for batch in update] == [[], [], [], ["e"]]
    assert first in dict(update[1].state.keys())
    assert first not in dict(update[2].state.keys())


def test_a_carried_batch_changes_nothing() -> None:
    """In a batch that a repartition added, the watermark does not move and nothing is emitted or evicted."""
    seen = BatchInput(0, (Arrival("a", visit("F", "10:01")), Arrival("b", visit("F", "11:01"))))
    results = simulate(oracle.browser_stats("closed"), [seen, BatchInput(1, (), carried=True), BatchInput(2, ())])
    assert [result.watermark_ms > 0 for result in results] == [False, False, True]
    assert [len(result.emitted) for result in results] == [0, 0, 1]


def test_an_uncommitted_batch_leaves_two_possible_values() -> None:
    """An uncommitted batch may have been written or not until it runs again; any other value in the sink is wrong."""
    writes = LastWrites()
    first, second = Counter({("F",): (1,)}.items()), Counter({("F",): (2,), ("G",): (1,)}.items())
    writes.record_committed(ExpectedBatch(0, 0, first, Counter()))
    writes.record_possible(ExpectedBatch(1, 0, second, Counter()))
    assert writes.differences({("F",): (1,)}) == []
    assert writes.differences({("F",): (2,), ("G",): (1,)}) == []
    assert writes.differences({("F",): (3,)}) != []
    assert writes.differences({("F",): (1,), ("H",): (1,)}) != []
    writes.record_committed(ExpectedBatch(1, 0, second, Counter()))
    assert writes.differences({("F",): (1,)}) != []


def test_rows_of_a_delta_table(tmp_path: Path) -> None:
    """Batches are appended, merged by key, or replaced; a batch that only carries the state on changes nothing."""
    rows = [{("F",): (1,)}, {("F",): (2,), ("G",): (1,)}, {}]
    batches = [ExpectedBatch(number, 0, Counter(emitted.items()), Counter()) for number, emitted in enumerate(rows)]
    jobs = {cell.job.mode: cell.job for cell in CELLS if cell.sink == "delta"}
    last = Counter({(("F",), (2,)): 1, (("G",), (1,)): 1})
    assert table_rows_after(jobs["append"], batches) == last + Counter({(("F",), (1,)): 1})
    assert table_rows_after(jobs["update"], batches) == table_rows_after(jobs["complete"], batches) == last
    assert table_rows_after(jobs["complete"], batches[:1]) == Counter({(("F",), (1,)): 1})
    assert read_delta_rows(jobs["append"], tmp_path) == read_iceberg_rows(jobs["append"], tmp_path) == Counter()


def test_rows_of_an_iceberg_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commits are read, also the last one if a kill left the hint of the newest version behind it."""
    lake = Lake(tmp_path)
    lake.batch("a", 0)
    hint = lake.folder / "metadata" / "version-hint.text"
    before = hint.read_text()
    lake.batch("a", 1)
    hint.write_text(before)
    job = replace(CELLS[0].job, row=lambda row: ((row["who"],), (row["batch"],)))
    monkeypatch.setattr("soak.sinks.ICEBERG_TABLE", NAME)
    assert read_iceberg_rows(job, lake.warehouse) == Counter([(("a",), (0,)), (("a",), (1,))])


def test_places_of_a_batch() -> None:
    """The records of a batch follow from the offsets or the file names of each of its sources."""
    batch = PlannedBatch(1, 0, 0, ({"t": {"0": 3, "1": 1}},), committed=True)
    assert places(batch, ({"t": {"0": 2}},), {}) == [("t", 0, 2), ("t", 1, 0)]
    files = PlannedBatch(1, 0, 0, (["a", "b"],), committed=True)
    assert places(files, (["a"],), {"a": 5, "b": 2}) == [("b", 1), ("b", 2)]
    both = PlannedBatch(1, 0, 0, ({"t": {"0": 3}}, {"u": {"0": 1}}), committed=True)
    assert places(both, ({"t": {"0": 2}}, None), {}) == [("t", 0, 2), ("u", 0, 0)]
    assert places(PlannedBatch(0, 0, 0, (None, {"u": {"0": 1}}), committed=True), (), {}) == [("u", 0, 0)]
    assert Lineage().head == -1


def test_a_batch_keeps_the_table_that_it_was_joined_with(tmp_path: Path) -> None:
    """A committed batch that was known keeps its version of the table; a new one and one that must run again do not."""
    for folder in ("offsets", "commits", "sources"):
        (tmp_path / folder).mkdir()
    times = '{"batchWatermarkMs": 0, "batchTimestampMs": 5}'
    for number in range(2):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{times}\n{{"t": {{"0": {number + 1}}}}}\n-')
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
    first = read_lineage(tmp_path, Lineage(), table=1)
    assert [batch.table for batch in first.batches] == [1, 1]
    assert first.batches[1].until == ({"t": {"0": 2}}, None)
    assert [batch.table for batch in read_lineage(tmp_path, first, table=2).batches] == [1, 1]
    (tmp_path / "commits" / "1").unlink()
    rewound = read_lineage(tmp_path, first, table=2)
    (tmp_path / "commits" / "1").write_text("v1\n{}")
    assert [batch.table for batch in read_lineage(tmp_path, rewound, table=2).batches] == [1, 2]


def test_items_have_the_products_of_their_version(tmp_path: Path) -> None:
    """An item has the category and the price of a version of the table; a missing product is unknown and free."""
    table = ProductTable(tmp_path / "products")
    table.versions = [{"p1": {"category": "drinks", "price": 300}}, {"p1": {"category": None, "price": 350}}]
    sold = {"product": "p1", "quantity": 2, "sold_at": "2026-03-01T10:01:00.000Z"}
    batches = [
        BatchInput(0, (Arrival("a", table.enrich(sold, 0), "items"), Arrival("b", table.enrich(sold, 1), "items")))
    ]
    (result,) = simulate(oracle.enriched_sales("changed"), batches)
    assert {(key[0], value) for key, value in result.emitted} == {("drinks", (2, 600)), ("unknown", (2, 700))}
    assert table.enrich({"product": None}, 1) == {"product": None, "category": "unknown", "price": 0}
    table.replace(seed=1)
    written = [json.loads(line) for line in (tmp_path / "products" / "products.json").read_text().splitlines()]
    assert {row["product"]: row for row in written} == table.versions[-1]


def at(minute: float) -> str:
    return (START + timedelta(minutes=minute)).isoformat()


def shown(minute: float, impression: str | None = "i", ad: str = "tea") -> Arrival:
    fields = {"impression": impression, "ad": ad, "shown_at": at(minute)}
    return Arrival(f"shown {minute}", fields, IMPRESSIONS)


def clicked(minute: float, impression: str | None = "i") -> Arrival:
    return Arrival(f"clicked {minute}", {"impression": impression, "clicked_at": at(minute)}, CLICKS)


def attributed(batches: list[list[Arrival]], recorded: list[int | None] | None = None) -> list[ExpectedBatch]:
    marks = recorded or [None] * len(batches)
    inputs = [
        BatchInput(number, tuple(records), recorded_ms=None if mark is None else minutes(mark))
        for number, (records, mark) in enumerate(zip(batches, marks, strict=True))
    ]
    return simulate_attribution(inputs)


def minutes(minute: int) -> int:
    """Return a watermark in minutes after the start as Spark records it: 0 is none."""
    return milliseconds(START) + minute * MINUTE_MS if minute else 0


def emitted_minutes(batch: ExpectedBatch) -> list[tuple[float, float | None]]:
    """Return the minutes of the impression and of the click of each emitted row."""
    start = milliseconds(START)
    rows = [key for key, _ in batch.emitted.elements()]
    return sorted(((row[2] - start) / MINUTE_MS, row[3] and (row[3] - start) / MINUTE_MS) for row in rows)


def test_the_join_by_hand() -> None:
    """A click matches impressions of the hour before it, in any order of arrival, and unmatched impressions come last."""
    batches = [
        [shown(0), shown(0, "j"), clicked(60), clicked(5, "k")],
        [shown(5, "k"), shown(6, "k"), clicked(61), clicked(0)],
        [shown(200), clicked(200, "z")],
        [],
    ]
    results = attributed(batches)
    assert [emitted_minutes(one) for one in results] == [[(0, 60)], [(0, 0), (5, 5)], [], [(0, None), (6, None)]]
    (unmatched,) = [key for key, _ in results[3].emitted if key[0] == "j"]
    assert unmatched[1:] == ("tea", minutes(0) or milliseconds(START), None)
    matched = {key: value for key, value in results[1].state if key == ("left-keyWithIndexToValue", "i")}
    assert matched == {("left-keyWithIndexToValue", "i"): ("tea", milliseconds(START), True)}
    assert {key: value for key, value in results[3].state if "Num" in key[0]} == {
        ("left-keyToNumValues", "i"): (1,),
        ("right-keyToNumValues", "z"): (1,),
    }


@pytest.mark.parametrize("name", ["left-join-hdfs", "left-join-changelog"])
def test_the_join_oracle_agrees_with_spark(corpus: Callable[[str], CorpusCheckpoint], name: str) -> None:
    """From the records of a recorded join, the oracle computes Spark's watermarks, output and state of every batch."""
    recorded = corpus(name)
    folders = {IMPRESSIONS: "shown", CLICKS: "clicked"}
    lineage = read_lineage(recorded.path, Lineage())
    inputs = []
    for batch, before in lineage.ranges():
        records = []
        for place, (side, folder) in enumerate(folders.items()):
            new = set(batch.until[place]) - set(before[place] if before else ())
            lines = [line for file in sorted(new) for line in (recorded.input / folder / file).read_text().splitlines()]
            records += [Arrival(line, renamed(json.loads(line)), side) for line in lines]
        inputs.append(BatchInput(batch.batch_id, tuple(records), recorded_ms=batch.watermark_ms))
    results = simulate_attribution(inputs, within_ms=10 * MINUTE_MS)
    assert [one.watermark_ms for one in results] == [batch.watermark_ms for batch in lineage.batches]
    for result in results:
        emitted = Counter(ATTRIBUTION.row(renamed(row)) for row in recorded.emitted[result.batch_id])
        assert result.emitted == emitted, result.batch_id
        answers = [answer for answer in recorded.answers_at(result.batch_id) if answer.store_name]
        rows = [{**row, "store": answer.store_name} for answer in answers for row in answer.rows]
        assert result.state == Counter(ATTRIBUTION.state_row({**row, "value": renamed(row["value"])}) for row in rows)


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the recorded join with the names of ad-attribution."""
    others = {name: value for name, value in row.items() if name not in ("ad", "site", "clicked_ad", "user")}
    return {**others, "impression": row.get("ad", row.get("clicked_ad")), "ad": row.get("site")}


def test_equal_rows_are_counted() -> None:
    """The same click twice emits two equal rows, and the state holds both clicks."""
    (result,) = attributed([[shown(0), clicked(1), clicked(1)]])
    assert list(result.emitted.values()) == [2]
    assert result.state[("right-keyWithIndexToValue", "i"), (None, minutes(1), True)] == 2
    assert result.state[("right-keyToNumValues", "i"), (2,)] == 1


def test_rows_leave_the_join_at_the_watermark() -> None:
    """A row stays while the watermark is at the end of its hour, or a click at its time, and leaves after it."""
    seen = [shown(0, "j"), clicked(60, "l")]
    results = [attributed([seen, [shown(minute, "x"), clicked(minute, "y")], []])[2] for minute in (70, 70.001)]
    assert [result.watermark_ms - minutes(60) for result in results] == [0, 60]
    stored = [{key[1] for key, _ in result.state} for result in results]
    assert stored == [{"j", "l", "x", "y"}, {"x", "y"}]
    assert [emitted_minutes(result) for result in results] == [[], [(0, None)]]


def test_late_records_of_a_join() -> None:
    """Each side drops its records up to the watermark of the batch before; the slower source determines it."""
    batches = [[shown(100), clicked(130)], [shown(90), clicked(91)], [shown(90), shown(91), clicked(90), clicked(91)]]
    results = attributed(batches)
    assert [sorted(one.late) for one in results] == [[], [], ["clicked 90", "shown 90"]]
    assert [one.watermark_ms for one in results] == [0, minutes(90), minutes(90)]


def test_records_without_an_impression() -> None:
    """An impression without a key matches nothing and is emitted; a click without one is ignored, even for the watermark."""
    results = attributed([[shown(0, None), clicked(1, None)], [shown(300), clicked(400, None)], [clicked(300)], []])
    assert [one.watermark_ms for one in results] == [0, 0, 0, minutes(290)]
    assert [emitted_minutes(one) for one in results] == [[], [], [(300, 300)], [(0, None)]]
    assert not any("right" in key[0] for key, _ in results[1].state)


def test_a_restart_may_hold_the_watermark_back() -> None:
    """A recorded watermark is followed if the query can have restarted; one that no restart explains is not."""
    batches = [[shown(20), clicked(20)], [shown(50)], [clicked(60)], []]
    last = {"uninterrupted": 40, "restarted after batch 0": 40, "restarted after batch 1": 10}
    assert {mark: attributed(batches, [0, 10, 10, mark])[3].watermark_ms for mark in last.values()} == {
        mark: minutes(mark) for mark in last.values()
    }
    for wrong in (0, 30, 50):
        assert attributed(batches, [0, 10, 10, wrong])[3].watermark_ms == minutes(40)
    both = [[shown(20), clicked(20)], [shown(50), clicked(60)], []]
    assert attributed(both, [0, 10, 10])[2].watermark_ms == minutes(40), "both sources have delivered in batch 1"


def test_a_union_has_the_watermark_of_the_slower_source() -> None:
    """While one source of a union is silent, the watermark stays, and nothing is late."""
    rules = oracle.browser_stats("changed", "web", "app")
    web = [Arrival(name, visit("F", name), "web") for name in ("10:01", "11:01", "10:02")]
    batches = [BatchInput(number, (record,)) for number, record in enumerate(web)]
    app = BatchInput(3, (Arrival("app", visit("F", "11:00"), "app"), Arrival("x", visit("F", "10:02"), "app")))
    results = simulate(
        rules, [*batches, app, BatchInput(4, ()), BatchInput(5, (Arrival("y", visit("F", "10:02"), "app"),))]
    )
    assert [bool(one.watermark_ms) for one in results] == [False, False, False, False, True, True]
    assert [sorted(one.late) for one in results] == [[], [], [], [], [], ["y"]]


def test_the_ledger_adds_up(tmp_path: Path) -> None:
    """Only stories that passed count, the figures go between their markers, and failed stories run before new ones."""
    file, page = tmp_path / "ledger.jsonl", tmp_path / "page.md"
    line = {
        "seed": 4,
        "commit": "1234567",
        "spark": "4.2.0",
        "cell": CELLS[0].name,
        "actions": 15,
        "tally": {"kills": 2},
        "refused": {},
        "seconds": 3.0,
        "outcome": "good",
    }
    ledger.append(line, file)
    ledger.append({**line, "seed": 5, "outcome": "CheckFailed: x"}, file)
    page.write_text(f"above\n{ledger.BEGIN}\nprevious\n{ledger.END}\nbelow\n")
    ledger.write_report(file, page)
    groups, elsewhere = (ledger.next_groups(ledger.read(file), spark) for spark in ("4.2.0", "4.1.4"))
    assert [next(groups) for _ in range(2)] == [[5], [*range(GROUP, 2 * GROUP)]]
    assert next(elsewhere) == [*range(GROUP, 2 * GROUP)]
    text = page.read_text()
    assert text.startswith("above\n") and text.endswith("\nbelow\n")
    assert "previous" not in text
    assert "| stories that passed | 1, with 15 actions |" in text
    assert "| failed runs on the way | 1, of 1 stories: 1 still fail |" in text


def test_a_batch_that_the_sink_had_already_teaches_no_times() -> None:
    """After a kill, a batch whose rows are in the sink is skipped, so that the watermark may stay; otherwise it must not."""
    inputs = [BatchInput(0, (Arrival(1, {"at": 900_000}),), False, 0), BatchInput(1, (), False, 0)]
    skipped = [inputs[0]._replace(may_be_skipped=True), inputs[1]]
    for batches, expected in ((inputs, 300_000), (skipped, 0)):
        found = follow_watermarks(batches, [""], lambda arrival: arrival.fields["at"], 600_000)
        assert [watermark.evicts_ms for watermark in found] == [0, expected]
