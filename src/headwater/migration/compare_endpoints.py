"""The shape of a source, and the comparison of the sink and the output mode of a checkpoint with those of new code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.checkpoint.record import uri_kind
from headwater.migration.comparison import Commands, Difference


@dataclass(frozen=True)
class SourceShape:
    """A source: the name that the job gives it, if any, its kind, and the topics of a Kafka source."""

    name: str
    kind: str | None
    topics: str = ""
    location: str | None = None
    """What it reads, as a URI without options; None if unknown."""

    def __str__(self) -> str:
        about = " ".join(filter(None, [self.kind or "unknown", self.topics]))
        return f"{self.name}: {about}" if self.name else about

    def matches(self, other: SourceShape) -> bool:
        """Return whether offsets of this source can be those of the other. What is unknown is no difference."""
        kinds = {"files" if kind == "table" else kind for kind in (self.kind, other.kind)}
        known = None not in kinds and "unknown" not in kinds
        return not (known and len(kinds) > 1) and not (self.topics and other.topics and self.topics != other.topics)


def source_shape(name: str, uri: str | None, topics: str = "") -> SourceShape:
    """Return the shape of a source that a URI names."""
    kind = uri_kind(uri)
    if kind == "kafka" and not topics:
        topics = (uri or "").partition("?")[0].rpartition("/")[2]
    return SourceShape(name, kind, topics, None if uri is None else uri.partition("?")[0])


def compare_mode(old: str | None, new: str, commands: Commands, *, has_state: bool) -> Iterator[Difference]:
    """Yield a changed output mode."""
    if old is None or old == new:
        return
    why = "Spark accepts it; the sink receives other rows than before" + (
        ", and in complete mode state never expires" if has_state and "complete" in (old, new) else ""
    )
    yield Difference("output mode", old, new, "changes-meaning", why, commands.accept)


def compare_sink(
    old: str | None, new: str, old_folder: str | None, new_folder: str | None, commands: Commands
) -> Iterator[Difference]:
    """Yield a changed sink. Rows of earlier batches stay where they were written."""
    if old_folder and new_folder and old_folder != new_folder:
        yield Difference(
            "folder of the file sink",
            old_folder,
            new_folder,
            "needs-new-checkpoint",
            "the sink keeps a log of all batches in its folder, and the new folder lacks the earlier ones",
            f"use the recorded folder, or: {commands.new_checkpoint}",
        )
    elif old is not None and _place(old) != _place(new):
        why = "the state does not depend on it; rows of earlier batches stay in the old sink"
        yield Difference("sink", old.partition("?")[0], new.partition("?")[0], "compatible", why)


def _place(uri: str) -> str:
    return uri.partition("?")[0]
