"""Fixtures for tests of alerts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alerts.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """An HTTP server on loopback."""
    with receiving() as found:
        yield found
