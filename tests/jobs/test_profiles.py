"""Profiles of a run."""

from __future__ import annotations

import pytest

from headwater.core.errors import UsageProblem
from headwater.jobs.profiles import CODE, profile_settings


def test_profiles() -> None:
    """A profile is a set of Spark settings; without one there are none."""
    assert profile_settings("latency") == {CODE: "NO_CODEGEN"}
    assert profile_settings("throughput") == {CODE: "FALLBACK"}
    assert profile_settings(None) == {}


def test_unknown_profile() -> None:
    """The refusal names the profiles that there are."""
    with pytest.raises(UsageProblem, match="'speed' is not a profile") as refused:
        profile_settings("speed")
    assert refused.value.remedy == "--profile latency or --profile throughput"
