"""Generated records: their shapes, their faults, and their repeatability."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.core.times import iso_from_ms, ms_from_iso
from headwater.datagen.products import product_lines, product_rows
from headwater.datagen.shapes import SHAPES
from headwater.datagen.stream import FIXED_START_MS, Block, RecordStream, Shares, stepped_blocks

ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
EXACT = {
    "visits": rf'\{{"userId": \d+, "page": "[a-z]+\.html", "eventTime": "{ISO}", "browser": "[A-Z][a-z]+"\}}',
    "purchases": r"\{'user': '[A-Z][a-z]+', 'shopping': \d+, 'date': '\d\d-\d\d-\d{4}'\}",
    "trades": r"\{'id': '[a-z]+', 'amount': \d+, 'type': '(buy|sell)', 'time': '\d\d-\d\d-\d{4}-\d\d-\d\d'\}",
    "sales": rf'\{{"store": "s\d+", "counter": \d+, "amount": \d+, "sold_at": "{ISO}"\}}',
    "items": rf'\{{"store": "s\d+", "product": "p\d+", "quantity": [1-5], "sold_at": "{ISO}"\}}',
    "impressions,clicks": rf'\{{"impression": "i\d+", ("ad": "[a-z]+", "shown_at"|"clicked_at"): "{ISO}"\}}',
    "sessions": rf'\{{"user": "u\d+", "event_time": "{ISO}"\}}',
}
EVERY_SHAPE = pytest.mark.parametrize("shape", sorted(SHAPES))


def blocks(shape: str, count: int, *, seed: int = 1, shares: Shares | None = None, format: str = "json") -> list[Block]:
    stream = RecordStream(shape, seed=seed, shares=shares, format=format)
    return list(stepped_blocks(stream, start_ms=FIXED_START_MS, count=count))


def records(shape: str, count: int, *, seed: int = 1, shares: Shares | None = None, format: str = "json") -> list[str]:
    generated = blocks(shape, count, seed=seed, shares=shares, format=format)
    return [record.decode() for block in generated for record in block.records]


@EVERY_SHAPE
def test_records_have_the_shape_that_the_gallery_reads(shape: str) -> None:
    """Every valid record is JSON with exactly the fields and formats that the jobs read."""
    assert all(re.fullmatch(EXACT[shape], record) for record in records(shape, 2500))


def test_counters_belong_to_stores() -> None:
    """Sales come from all counters from 1 to 500, and a counter always belongs to the same store."""
    sales = [json.loads(record) for record in records("sales", 5000)]
    assert {sale["counter"] for sale in sales} == set(range(1, 501))
    assert len({(sale["store"], sale["counter"]) for sale in sales}) == 500


def test_items_refer_to_products() -> None:
    """Every product of the table is sold. Another seed changes the prices and nothing else."""
    first, second = product_rows(1), product_rows(2)
    assert {json.loads(record)["product"] for record in records("items", 5000)} == {row[0] for row in first}
    assert [row[:3] for row in first] == [row[:3] for row in second]
    assert [row[3] for row in first] != [row[3] for row in second]
    assert [json.loads(line)["price"] for line in product_lines(1, "json")] == [row[3] for row in first]


def test_clicks_follow_impressions() -> None:
    """Clicks belong to impressions: a third of them are clicked, once, after they were shown, a few too late."""
    shown, delays = {}, []
    for record in map(json.loads, records("impressions,clicks", 20_000, seed=3)):
        if "shown_at" in record:
            shown[record["impression"]] = ms_from_iso(record["shown_at"])
        else:
            delays.append(ms_from_iso(record["clicked_at"]) - shown.pop(record["impression"]))
    assert min(delays) > 0
    assert 0.03 < sum(delay > 3_600_000 for delay in delays) / len(delays) < 0.07
    assert 0.25 < len(delays) / (len(shown) + len(delays)) < 0.34


@EVERY_SHAPE
def test_same_seed_same_bytes(shape: str) -> None:
    """The same seed generates the same bytes, and another seed generates others."""
    shares = Shares(0.05, 0.02, 0.02)
    first = records(shape, 3000, seed=7, shares=shares)
    assert first == records(shape, 3000, seed=7, shares=shares)
    assert first != records(shape, 3000, seed=8, shares=shares)


@EVERY_SHAPE
def test_no_two_records_are_equal_by_accident(shape: str) -> None:
    """All records differ unless duplicates are requested, so that requested ones can be counted."""
    generated = records(shape, 20_000)
    assert len(set(generated)) == len(generated)


def test_faults_do_not_change_other_records() -> None:
    """The valid records of a seed are the same whichever faults are requested."""
    plain = records("visits", 2000)
    faulty = records("visits", 2000, shares=Shares(malformed=0.1))
    assert sum(before != after for before, after in zip(plain, faulty, strict=True)) == 200


@pytest.mark.parametrize("shape", ["visits", "sales", "sessions"])
def test_event_time_advances_by_the_step(shape: str) -> None:
    """Event time starts at the fixed start and never decreases if no record is late."""
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
@example(late=0.33, duplicates=0.33, malformed=0.33, sizes=[69, 16])
def test_shares_are_kept_after_every_block(late: float, duplicates: float, malformed: float, sizes: list[int]) -> None:
    """However a stream is divided into blocks, each share of all records so far is exact to within two records."""
    stream = RecordStream("sessions", seed=1, shares=Shares(late, duplicates, malformed))
    generated, counts = 0, [0, 0, 0]
    for size in sizes:
        block = stream.block(range(generated, generated + size))
        assert len(block.records) == size
        generated += size
        faults = [block.late, block.duplicates, block.malformed]
        assert len({index for indexes in faults for index in indexes}) == sum(map(len, faults))
        counts = [count + len(indexes) for count, indexes in zip(counts, faults, strict=True)]
        for count, share in zip(counts, (late, duplicates, malformed), strict=True):
            assert abs(count - generated * share) < 2


@EVERY_SHAPE
def test_malformed_records_cannot_be_decoded(shape: str) -> None:
    """A malformed record is truncated, has a value of the wrong type, or is garbage; all three kinds occur."""
    kinds = set()
    for block in blocks(shape, 2000, shares=Shares(malformed=0.1)):
        for index in block.malformed:
            record = block.records[index].decode()
            assert not re.fullmatch(EXACT[shape], record)
            try:
                row = json.loads(record.replace("'", '"'))
            except ValueError:
                kinds.add("garbage" if record.startswith("#") else "truncated")
            else:
                assert {} in row.values() or "some day" in row.values()
                kinds.add("wrong type")
    assert kinds == {"garbage", "truncated", "wrong type"}


@pytest.mark.parametrize("shape", ["visits", "purchases", "sales"])
def test_malformed_csv_has_too_few_columns_or_a_wrong_type(shape: str) -> None:
    """A truncated CSV line always lacks a column, so that it cannot be valid."""
    columns = len(SHAPES[shape].columns)
    for block in blocks(shape, 2000, shares=Shares(malformed=0.1), format="csv"):
        for index, record in enumerate(block.records):
            fields = record.decode().split(",")
            if index not in block.malformed:
                assert len(fields) == columns
            else:
                assert len(fields) < columns or "{}" in fields


@EVERY_SHAPE
def test_duplicates_repeat_a_recent_record(shape: str) -> None:
    """A duplicate is a copy of one of the previous few hundred records."""
    stream = blocks(shape, 3000, shares=Shares(duplicates=0.05))
    everything = [record for block in stream for record in block.records]
    indexes = [1000 * number + index for number, block in enumerate(stream) for index in block.duplicates]
    assert len(indexes) == 150
    assert len(everything) - len(set(everything)) == 150
    copies_of_later_ones = sum(everything[index] not in everything[max(0, index - 400) : index] for index in indexes)
    assert copies_of_later_ones <= 1, "only at the start of the stream"


def test_late_records_are_hours_late() -> None:
    """A late visit is later than any usual watermark delay; the others are on time."""
    for number, block in enumerate(blocks("visits", 3000, shares=Shares(late=0.05))):
        due = [FIXED_START_MS + (number * 1000 + index) * 10 for index in range(1000)]
        for index, record in enumerate(block.records):
            event_time = json.loads(record)["eventTime"]
            if index in block.late:
                assert event_time < iso_from_ms(due[index] - 7_000_000)
            else:
                assert event_time == iso_from_ms(due[index])


def test_late_purchases_are_weeks_late() -> None:
    """Late purchases are weeks late, because jobs count purchases over seven days."""
    (block,) = blocks("purchases", 100, shares=Shares(late=0.1))
    assert len(block.late) == 10
    for index in block.late:
        assert b"-10-2024" not in block.records[index]


@pytest.mark.parametrize("shares", [(-0.1, 0, 0), (0.5, 0.5, 0.1)])
def test_impossible_shares(shares: tuple[float, float, float]) -> None:
    """Negative shares, and shares that add up to more than 1, raise ``ValueError``."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        Shares(*shares)
