"""Made-up records: their shapes, their faults, and that they can be repeated."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.times import iso_from_ms
from headwater.datagen.shapes import SHAPES
from headwater.datagen.stream import FIXED_START_MS, Block, RecordStream, Shares, stepped_blocks

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
EXACT = {
    "visits": rf'\{{"userId": \d+, "page": "[a-z]+\.html", "eventTime": "{ISO}", "browser": "[A-Z][a-z]+"\}}',
    "purchases": r"\{'user': '[A-Z][a-z]+', 'shopping': \d+, 'date': '\d\d-\d\d-\d{4}'\}",
    "trades": r"\{'id': '[a-z]+', 'amount': \d+, 'type': '(buy|sell)', 'time': '\d\d-\d\d-\d{4}-\d\d-\d\d'\}",
    "sales": rf'\{{"store": "s\d+", "counter": \d+, "amount": \d+, "sold_at": "{ISO}"\}}',
    "sessions": rf'\{{"user": "u\d+", "event_time": "{ISO}"\}}',
}
EVERY_SHAPE = pytest.mark.parametrize("shape", sorted(SHAPES))


def blocks(shape: str, count: int, *, seed: int = 1, shares: Shares | None = None, format: str = "json") -> list[Block]:
    stream = RecordStream(shape, seed=seed, shares=shares, format=format)
    return list(stepped_blocks(stream, start_ms=FIXED_START_MS, count=count))


def records(shape: str, count: int, *, seed: int = 1, shares: Shares | None = None, format: str = "json") -> list[str]:
    made = blocks(shape, count, seed=seed, shares=shares, format=format)
    return [record.decode() for block in made for record in block.records]


@EVERY_SHAPE
def test_records_have_the_shape_that_the_gallery_reads(shape: str) -> None:
    """Every sound record is JSON in exactly the fields and formats of its job's input."""
    assert all(re.fullmatch(EXACT[shape], record) for record in records(shape, 2500))


def test_counters_are_those_of_the_shops() -> None:
    """Sales come from counters 1 to 500, all of them, and a counter is always in the same store."""
    sales = [json.loads(record) for record in records("sales", 5000)]
    assert {sale["counter"] for sale in sales} == set(range(1, 501))
    assert len({(sale["store"], sale["counter"]) for sale in sales}) == 500


@EVERY_SHAPE
def test_same_seed_same_bytes(shape: str) -> None:
    """A seed gives the same bytes each time, and another seed gives others."""
    shares = Shares(0.05, 0.02, 0.02)
    first = records(shape, 3000, seed=7, shares=shares)
    assert first == records(shape, 3000, seed=7, shares=shares)
    assert first != records(shape, 3000, seed=8, shares=shares)


@EVERY_SHAPE
def test_no_two_records_are_equal_by_accident(shape: str) -> None:
    """Without duplicates asked for, all records differ, so that those asked for can be counted."""
    made = records(shape, 20_000)
    assert len(set(made)) == len(made)


def test_faults_leave_the_other_records_alone() -> None:
    """The sound records of a seed are the same whatever faults are asked for."""
    plain = records("visits", 2000)
    faulty = records("visits", 2000, shares=Shares(malformed=0.1))
    assert sum(before != after for before, after in zip(plain, faulty, strict=True)) == 200


@pytest.mark.parametrize("shape", ["visits", "sales", "sessions"])
def test_event_time_advances_by_the_step(shape: str) -> None:
    """Event time starts at the fixed instant and never goes back when nothing is late."""
    times = [re.findall(ISO, record)[0] for record in records(shape, 2500)]
    assert times[0] == iso_from_ms(FIXED_START_MS)
    assert all(earlier <= later for earlier, later in pairwise(times))


@settings(max_examples=60, deadline=None)
@given(
    late=st.floats(0, 0.33),
    duplicates=st.floats(0, 0.33),
    malformed=st.floats(0, 0.33),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=12),
)
def test_shares_are_kept_after_every_block(late: float, duplicates: float, malformed: float, sizes: list[int]) -> None:
    """However a stream is cut into blocks, each share of all records so far is kept to within two records."""
    stream = RecordStream("sessions", seed=1, shares=Shares(late, duplicates, malformed))
    made, found = 0, [0, 0, 0]
    for size in sizes:
        block = stream.block(range(made, made + size))
        assert len(block.records) == size
        made += size
        places = [block.late, block.duplicates, block.malformed]
        assert len({place for some in places for place in some}) == sum(map(len, places))
        found = [before + len(some) for before, some in zip(found, places, strict=True)]
        for number, share in zip(found, (late, duplicates, malformed), strict=True):
            assert abs(number - made * share) < 2


@EVERY_SHAPE
def test_malformed_records_do_not_decode(shape: str) -> None:
    """Each malformed record is no JSON object, or has a value that its column cannot hold; all three kinds occur."""
    kinds = set()
    for block in blocks(shape, 2000, shares=Shares(malformed=0.1)):
        for place in block.malformed:
            record = block.records[place].decode()
            assert not re.fullmatch(EXACT[shape], record)
            try:
                row = json.loads(record.replace("'", '"'))
            except ValueError:
                kinds.add("garbage" if record.startswith("#") else "cut off")
            else:
                assert {} in row.values() or "some day" in row.values()
                kinds.add("wrong type")
    assert kinds == {"garbage", "cut off", "wrong type"}


@pytest.mark.parametrize("shape", ["visits", "purchases", "sales"])
def test_malformed_csv_has_too_few_columns_or_a_wrong_type(shape: str) -> None:
    """A cut CSV line is always short of a column, so that it cannot pass for a whole one."""
    columns = len(SHAPES[shape].columns)
    for block in blocks(shape, 2000, shares=Shares(malformed=0.1), format="csv"):
        for place, record in enumerate(block.records):
            fields = record.decode().split(",")
            if place not in block.malformed:
                assert len(fields) == columns
            else:
                assert len(fields) < columns or "{}" in fields


@EVERY_SHAPE
def test_duplicates_repeat_a_record_from_shortly_before(shape: str) -> None:
    """A duplicate is, byte for byte, one of the few hundred records before it."""
    stream = blocks(shape, 3000, shares=Shares(duplicates=0.05))
    everything = [record for block in stream for record in block.records]
    places = [1000 * number + place for number, block in enumerate(stream) for place in block.duplicates]
    assert len(places) == 150
    assert len(everything) - len(set(everything)) == 150
    at_the_start = sum(everything[place] not in everything[max(0, place - 400) : place] for place in places)
    assert at_the_start <= 1


def test_late_records_are_hours_behind() -> None:
    """A late visit is behind by more than any usual watermark, the others are not behind at all."""
    for number, block in enumerate(blocks("visits", 3000, shares=Shares(late=0.05))):
        due = [FIXED_START_MS + (number * 1000 + place) * 10 for place in range(1000)]
        for place, record in enumerate(block.records):
            on_time = iso_from_ms(due[place])
            shown = json.loads(record)["eventTime"]
            if place in block.late:
                assert shown < iso_from_ms(due[place] - 7_000_000)
            else:
                assert shown == on_time


def test_late_purchases_are_weeks_behind() -> None:
    """Purchases count by day and over seven days, so that late ones are weeks behind."""
    (block,) = blocks("purchases", 100, shares=Shares(late=0.1))
    assert len(block.late) == 10
    for place in block.late:
        assert b"-10-2024" not in block.records[place]


@pytest.mark.parametrize("shares", [(-0.1, 0, 0), (0.5, 0.5, 0.1)])
def test_impossible_shares(shares: tuple[float, float, float]) -> None:
    """Shares below nothing or above everything are a mistake of the caller."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        Shares(*shares)
