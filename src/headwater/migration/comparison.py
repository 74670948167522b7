"""The differences between a checkpoint and the code that is to resume from it, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["same", "compatible", "changes-meaning", "needs-migrate", "needs-new-checkpoint"]
VERDICTS: tuple[Verdict, ...] = ("same", "compatible", "changes-meaning", "needs-migrate", "needs-new-checkpoint")


@dataclass(frozen=True)
class Difference:
    """One difference. ``old`` is what the checkpoint has, ``new`` what the code asks for; None is nothing."""

    what: str
    old: str | None
    new: str | None
    verdict: Verdict
    why: str
    remedy: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as ``--json`` prints it."""
        return {
            "what": self.what,
            "old": self.old,
            "new": self.new,
            "remedy": self.remedy,
            "verdict": self.verdict,
            "why": self.why,
        }


@dataclass(frozen=True)
class Comparison:
    """What changed between a checkpoint and the code of a job.

    ``notes`` name what could not be compared.
    """

    job: str
    checkpoint: str
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The most severe verdict of the differences; ``same`` if there are none."""
        return max((one.verdict for one in self.differences), key=VERDICTS.index, default="same")

    @property
    def starts(self) -> bool:
        """Whether Spark starts the code on this checkpoint."""
        return self.verdict in ("same", "compatible", "changes-meaning")

    @property
    def is_safe(self) -> bool:
        """Whether the code starts and its state keeps its meaning."""
        return self.verdict in ("same", "compatible")

    @property
    def remedy(self) -> str | None:
        """The command or change that helps with the most severe difference."""
        return next((one.remedy for one in self.differences if one.verdict == self.verdict and one.remedy), None)

    def of(self, verdict: Verdict) -> list[Difference]:
        """Return the differences with this verdict."""
        return [one for one in self.differences if one.verdict == verdict]

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as ``--json`` prints it."""
        return {
            "verdict": self.verdict,
            "differences": [one.as_dict() for one in self.differences],
            "notes": list(self.notes),
            "job": self.job,
            "checkpoint": self.checkpoint,
        }


@dataclass(frozen=True)
class Commands:
    """The commands that remedies name, for one job and checkpoint."""

    job: str
    checkpoint: str

    @property
    def migrate(self) -> str:
        return f"headwater migrate {self.checkpoint} --job {self.job}"

    @property
    def run(self) -> str:
        return f"headwater run {self.job} --checkpoint {self.checkpoint}"

    @property
    def new_checkpoint(self) -> str:
        return f"headwater run {self.job} --checkpoint NEW"

    @property
    def check(self) -> str:
        return f"headwater check {self.job} --checkpoint {self.checkpoint}"

    @property
    def accept(self) -> str:
        return f"{self.run} --accept-change"

    def repartition(self, partitions: str) -> str:
        return f"headwater repartition {self.checkpoint} {partitions}"


def compare_settings(recorded: Mapping[str, str], given: Mapping[str, str], commands: Commands) -> Iterable[Difference]:
    """Yield the settings that were given and that the checkpoint overrides: Spark records them with each batch."""
    for name, value in sorted(given.items()):
        if name in recorded and recorded[name] != value:
            partitions = name == "spark.sql.shuffle.partitions"
            remedy = commands.repartition(value) if partitions else f"omit {name}, or use a new checkpoint"
            why = "Spark keeps the value that the checkpoint records"
            yield Difference(f"setting {name}", recorded[name], value, "compatible", why, remedy)
