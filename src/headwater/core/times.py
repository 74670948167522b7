"""Conversion between epoch milliseconds and ISO 8601 in UTC (``2026-07-01T10:30:00.000Z``)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_from_ms(epoch_ms: int) -> str:
    """Return the time as ISO 8601, or as ``N ms`` outside the years 1 to 9999, so that corrupt data never raises."""
    try:
        moment = EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{epoch_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def ms_from_iso(text: str) -> int:
    """Return the epoch milliseconds of any ISO 8601 time; one without a time zone is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)
