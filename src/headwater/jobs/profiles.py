"""Profiles of a run: settings for many small batches, or for few large ones."""

from __future__ import annotations

from headwater.core.errors import UsageProblem

CODE = "spark.sql.codegen.factoryMode"
GENERATED, INTERPRETED = "FALLBACK", "NO_CODEGEN"
PROFILES = {"latency": {CODE: INTERPRETED}, "throughput": {CODE: GENERATED}}


def profile_settings(name: str | None) -> dict[str, str]:
    """Return the Spark settings of a profile; none without a name."""
    if name is not None and name not in PROFILES:
        raise UsageProblem(
            "bad-option", f"{name!r} is not a profile", remedy=f"--profile {' or --profile '.join(PROFILES)}"
        )
    return PROFILES[name] if name else {}
