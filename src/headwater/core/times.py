"""Times as people and scripts read them: ISO 8601, UTC, milliseconds, ``Z``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_from_ms(epoch_ms: int) -> str:
    """Years beyond what ``datetime`` knows come back as plain milliseconds, so that odd data never raises."""
    try:
        moment = EPOCH + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return f"{epoch_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def ms_from_iso(text: str) -> int:
    """Accepts what ``iso_from_ms`` prints and any ISO 8601 time; one without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)
