"""The fixture of the pytest plugin, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Console, Files, Job
from headwater.testing import plugin

JOB = Job("visits", lambda rows: rows, reads=Files("in", schema="a INT"), writes=Console())


class FailingScenario:
    """A scenario that fails when it is closed, as with rows that no assertion checked."""

    closed: list[int]

    def __init__(self, *_: Any, **__: Any) -> None:
        self._number = len(self.closed)
        self.closed.append(0)

    def close(self) -> None:
        self.closed[self._number] += 1
        raise AssertionError(f"scenario {self._number} has unchecked rows")


def test_every_scenario_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A scenario that fails at its end does not leave the others running; the first one is reported."""
    monkeypatch.setattr(FailingScenario, "closed", [], raising=False)
    monkeypatch.setattr("headwater.testing.scenario.Scenario", FailingScenario)
    fixture = plugin.scenario.__wrapped__(None, tmp_path_factory)  # type: ignore[attr-defined]
    opening = next(fixture)
    opening(JOB)
    opening(JOB)
    with pytest.raises(AssertionError, match="scenario 0 has unchecked rows"):
        next(fixture)
    assert FailingScenario.closed == [1, 1]
