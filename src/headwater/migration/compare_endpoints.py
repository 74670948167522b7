"""Compare the sources, the sink and the output mode of a checkpoint with those of new code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.checkpoint.record import uri_kind
from headwater.migration.comparison import Commands, Difference

_WHY_ORDER = "Spark finds the offsets of a source by its place in the plan"
_WHY_COUNT = "Spark refuses to start if the number of sources is not that of the recorded offsets"
_WHY_KIND = "the recorded offsets are those of another source"


@dataclass(frozen=True)
class SourceShape:
    """A source: the name that the job gives it, if any, its kind, and the topics of a Kafka source."""

    name: str
    kind: str | None
    topics: str = ""

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
    return SourceShape(name, kind, topics)


def compare_sources(
    old: Sequence[SourceShape], new: Sequence[SourceShape], commands: Commands, *, by_name: bool = False
) -> Iterator[Difference]:
    """Yield the differences between sources in the order of their offsets; ``by_name`` if the offsets have names."""
    if by_name:
        yield from _compare_named(old, new, commands)
        return
    named = all(one.name for one in (*old, *new))
    if named and sorted(one.name for one in old) == sorted(one.name for one in new):
        if [one.name for one in old] != [one.name for one in new]:
            shown = (", ".join(one.name for one in old), ", ".join(one.name for one in new))
            yield Difference("order of sources", *shown, "needs-new-checkpoint", _WHY_ORDER, commands.new_checkpoint)
            return
    elif len(old) != len(new):
        shown = (", ".join(map(str, old)), ", ".join(map(str, new)))
        yield Difference("sources", *shown, "needs-new-checkpoint", _WHY_COUNT, commands.new_checkpoint)
        return
    for place, (mine, theirs) in enumerate(zip(old, new, strict=True)):
        if not mine.matches(theirs):
            yield Difference(
                f"source {place}",
                str(mine),
                str(theirs),
                "needs-new-checkpoint",
                _WHY_KIND,
                f"use the recorded source, or: {commands.new_checkpoint}",
            )


def _compare_named(old: Sequence[SourceShape], new: Sequence[SourceShape], commands: Commands) -> Iterator[Difference]:
    before, after = {one.name: one for one in old}, {one.name: one for one in new}
    for name in [*before, *(one for one in after if one not in before)]:
        if name in before and name in after:
            if not before[name].matches(after[name]):
                shown = (str(before[name]), str(after[name]))
                yield Difference(f"source {name}", *shown, "needs-new-checkpoint", _WHY_KIND, commands.new_checkpoint)
            continue
        found = (str(before[name]) if name in before else None, str(after[name]) if name in after else None)
        why = "the offsets have the names of the sources, so Spark adds and removes them by itself"
        yield Difference(f"source {name}", *found, "compatible", why)


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
