"""The sources of a checkpoint and those of new code: which is which, and where the offsets and logs of each have to be.

Spark finds the offsets of a source, and its log under ``sources/``, by the place of the source in the plan. If the places
change, the lines of all offsets and the folders of the logs change alike, and a new source has no offset yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headwater.checkpoint.layout import OFFSETS, SOURCES, hadoop_crc_of, is_temporary, join
from headwater.checkpoint.log_entries import NO_OFFSET, OffsetEntry
from headwater.checkpoint.logs import CheckpointLogs
from headwater.checkpoint.plan_record import StatefulOperator
from headwater.core.errors import ChangeRefused, UsageProblem
from headwater.migration.compare_endpoints import SourceShape

Same = Callable[[SourceShape, SourceShape], bool]
_ATOM = r"[\w.]+(?![\w.(])"
_ALTERNATIVES = re.compile(rf"{_ATOM}(?: or {_ATOM})+")


@dataclass(frozen=True)
class SourceChanges:
    """The sources before and after. ``origins`` has, for each new source, the place of the same one before, if any."""

    old: tuple[SourceShape, ...]
    new: tuple[SourceShape, ...]
    origins: tuple[int | None, ...]

    @property
    def is_changed(self) -> bool:
        """Whether any source has another place than before."""
        return self.origins != tuple(range(len(self.old)))

    @cached_property
    def added(self) -> tuple[SourceShape, ...]:
        return tuple(one for one, origin in zip(self.new, self.origins, strict=True) if origin is None)

    @cached_property
    def dropped(self) -> tuple[SourceShape, ...]:
        return tuple(one for place, one in enumerate(self.old) if place not in self.origins)

    @property
    def is_reordered(self) -> bool:
        """Whether sources that stay are in another order than before."""
        kept = [origin for origin in self.origins if origin is not None]
        return kept != sorted(kept)

    @cached_property
    def pairs(self) -> tuple[tuple[SourceShape, SourceShape], ...]:
        """The sources that stay, before and after."""
        found = zip(self.new, self.origins, strict=True)
        return tuple((self.old[origin], one) for one, origin in found if origin is not None)

    def before(self, operator: StatefulOperator) -> StatefulOperator:
        """Return a recorded operator without the sources that are dropped."""
        return _without(operator, [one.name for one in self.dropped])

    def after(self, operator: StatefulOperator) -> StatefulOperator:
        """Return an operator of the new code without the sources that are added, and with the old names of the others."""
        kept = _without(operator, [one.name for one in self.added])
        renamed = {new.name: old.name for old, new in self.pairs if new.name and old.name != new.name}
        return _renamed(kept, renamed) if renamed else kept

    def places(self) -> list[dict[str, str | int | None]]:
        """Return the old and the new place of each source, for ``--json``."""
        found: list[dict[str, str | int | None]] = [
            {"source": str(one), "old_place": origin, "new_place": place}
            for place, (one, origin) in enumerate(zip(self.new, self.origins, strict=True))
        ]
        gone = (place for place in range(len(self.old)) if place not in self.origins)
        return [*found, *({"source": str(self.old[one]), "old_place": one, "new_place": None} for one in gone)]


def match_sources(
    old: Sequence[SourceShape], new: Sequence[SourceShape], given: Mapping[str, str] | None = None
) -> SourceChanges:
    """Find the sources of new code among those of a checkpoint: as given, by name, or else by what they read.

    ``given`` has the old name or place of new sources. Raise ``ChangeRefused`` if it is not certain which is which.
    """
    names = [one.name for one in old], [one.name for one in new]
    exchanged = _exchanged(old, new)
    same_names = names[0] == names[1] and all(names[0]) and not exchanged
    if len(old) == len(new) and (len(old) == 1 or same_names) and not given:
        return SourceChanges(tuple(old), tuple(new), tuple(range(len(old))))
    for side in names:
        twice = next((name for name in side if name and side.count(name) > 1), None)
        if twice is not None:
            raise _unclear(old, new, f"{twice} is used more than once, so that it has several offsets")
    origins: list[int | None] = [None] * len(new)
    for name, wanted in (given or {}).items():
        origins[_place(names[1], name, "new", "NEW=OLD")] = _place(names[0], wanted, "old", f"{name}=OLD")
    if not exchanged:
        _match(origins, old, new, lambda mine, theirs: bool(mine.name) and mine.name == theirs.name)
    _match(origins, old, new, lambda mine, theirs: mine.location is not None and mine.location == theirs.location)
    _match(origins, old, new, lambda mine, theirs: bool(mine.topics) and mine.topics == theirs.topics)
    left = [one for place, one in enumerate(old) if place not in origins]
    for place, theirs in enumerate(new):
        # What is not known of an old source might be this one.
        unknown = [one for one in left if (not one.name or one.location is None) and one.matches(theirs)]
        if origins[place] is None and unknown:
            raise _unclear(old, new, f"{theirs} may be the former source {unknown[0]}, or a new one")
    if len(set(found := [one for one in origins if one is not None])) != len(found):
        raise _unclear(old, new, "several new sources would continue with the same offsets")
    return SourceChanges(tuple(old), tuple(new), tuple(origins))


def _exchanged(old: Sequence[SourceShape], new: Sequence[SourceShape]) -> bool:
    """Return whether sources have exchanged their names: each name reads something else, and all is still read."""
    before, after = {one.name: one.location for one in old}, {one.name: one.location for one in new}
    known = len(before) == len(old) == len(new) == len(after) and None not in before.values()
    return known and before != after and set(before.values()) == set(after.values()) and before.keys() == after.keys()


def _match(origins: list[int | None], old: Sequence[SourceShape], new: Sequence[SourceShape], is_same: Same) -> None:
    """Match each new source that has no origin yet with the only old one that is the same."""
    for place, theirs in enumerate(new):
        free = [at for at in range(len(old)) if at not in origins and is_same(old[at], theirs)]
        if origins[place] is None and len(free) == 1:
            origins[place] = free[0]


def _place(names: list[str], name: str, side: str, form: str) -> int:
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    raise UsageProblem(
        "no-such-source",
        f"there is no {side} source {name}",
        evidence={"sources": ", ".join(one or str(place) for place, one in enumerate(names))},
        remedy=f"--source-map {form}, with the name or the place of a source",
    )


def _unclear(old: Sequence[SourceShape], new: Sequence[SourceShape], why: str) -> ChangeRefused:
    return ChangeRefused(
        "sources-unclear",
        "cannot determine which new source corresponds to which old one",
        evidence={
            "checkpoint": ", ".join(f"{place} ({one})" for place, one in enumerate(old)),
            "code": ", ".join(map(str, new)),
            "why": why,
        },
        remedy="--source-map NEW=OLD   (for each source that stays, with the old one's name or place)",
    )


def refuse_join_sides(changes: SourceChanges, *, has_join: bool) -> None:
    """Raise ``ChangeRefused`` if sources of a query that joins streams change their order."""
    if has_join and changes.is_reordered:
        raise ChangeRefused(
            "join-sides",
            "the order of the sources of a join has changed",
            evidence={
                "checkpoint": ", ".join(map(str, changes.old)),
                "code": ", ".join(map(str, changes.new)),
                "why": "a join keeps the rows of each side in stores of their own",
            },
            remedy="restore the order, for example by exchanging the sides of the join",
        )


@dataclass(frozen=True)
class SourceFiles:
    """The offsets and source logs of a checkpoint in the order of new code. See ``NewLayout`` for the fields."""

    leaving: tuple[str, ...]
    placed: dict[str, str]
    written: dict[str, bytes]
    offsets: bytes


def source_files(logs: CheckpointLogs, last: int, changes: SourceChanges) -> SourceFiles:
    """Return what becomes of the files. Raise ``ChangeRefused`` if the offsets have names, which Spark itself matches."""
    newest = logs.offsets.read(last)
    if newest.version > 1:
        raise ChangeRefused(
            "cannot-migrate",
            "the sources of this checkpoint cannot be moved",
            evidence={"why": "its offsets are in version 2 of the log, in which sources have names"},
            remedy="give the sources the names that the checkpoint records; Spark then finds them in any order",
        )
    written: dict[str, bytes] = {}
    leaving: list[str] = []
    present = {entry.name for entry in logs.files.entries(OFFSETS)}
    for number in logs.offsets.ids:
        entry = logs.offsets.get(number)
        if entry is None or number > last:
            continue
        path = logs.offsets.path(number)
        written[path] = _permuted(entry, changes)
        crc = hadoop_crc_of(path)
        leaving += [path, *([crc] if crc.rpartition("/")[2] in present else [])]
    placed: dict[str, str] = {}
    for path in _source_paths(logs):
        leaving.append(path)
        _, folder, rest = path.split("/", 2)
        for place, origin in enumerate(changes.origins):
            if str(origin) == folder:
                placed[f"{SOURCES}/{place}/{rest}"] = path
    return SourceFiles(tuple(leaving), placed, written, _permuted(newest, changes))


def _source_paths(logs: CheckpointLogs) -> Iterator[str]:
    for folder, names in sorted(logs.files.tree(SOURCES).items()):
        for name in sorted(names):
            if folder != SOURCES and not is_temporary(name):
                yield join(folder, name)


def _permuted(entry: OffsetEntry, changes: SourceChanges) -> bytes:
    version, (settings, *lines) = entry.text.lines[0], entry.text.body
    known = dict(enumerate(lines))
    moved = [NO_OFFSET if origin is None else known.get(origin, NO_OFFSET) for origin in changes.origins]
    return replace(entry.text, lines=(version, settings, *moved)).to_bytes()


def source_effects(changes: SourceChanges, batch: int, watermark: str | None) -> Iterator[str]:
    """Yield what the continued stream differs in from a run of the new code over all records."""
    for one in changes.added:
        late = f"; its records before the watermark, {watermark}, are late" if watermark else ""
        yield f"{one} is read from batch {batch + 1} on, from where its options say{late}"
    for one in changes.dropped:
        yield f"{one} is no longer read; what the state has of its records stays"


def _without(operator: StatefulOperator, gone: Sequence[str]) -> StatefulOperator:
    """Return an operator without the alternatives that come from some sources, if there are others."""
    if not any(gone):
        return operator
    of_gone = re.compile("|".join(rf"\b{re.escape(name)}\." for name in gone if name))

    def reduced(found: re.Match[str]) -> str:
        kept = [one for one in found[0].split(" or ") if not of_gone.search(one)]
        return " or ".join(kept) if kept else found[0]

    facts = {}
    for name, texts in operator.facts.items():
        kept = [_ALTERNATIVES.sub(reduced, text) for text in texts]
        if name in ("filters", "watermark"):
            kept = [text for text in kept if not of_gone.search(text)] or kept
        facts[name] = tuple(kept)
    return StatefulOperator(operator.kind, facts)


def _renamed(operator: StatefulOperator, names: Mapping[str, str]) -> StatefulOperator:
    """Return an operator with other names of sources, all at once, because two may exchange theirs.

    What comes from several sources is sorted again, as ``plan_text`` has it.
    """
    qualified = re.compile("|".join(rf"\b{re.escape(name)}\." for name in names))

    def other(found: re.Match[str]) -> str:
        name = names[found[0][:-1]]
        return f"{name}." if name else ""

    def in_order(found: re.Match[str]) -> str:
        return " or ".join(sorted(found[0].split(" or ")))

    facts = {}
    for name, texts in operator.facts.items():
        renamed = tuple(_ALTERNATIVES.sub(in_order, qualified.sub(other, text)) for text in texts)
        facts[name] = tuple(sorted(renamed)) if name in ("filters", "watermark") else renamed
    return StatefulOperator(operator.kind, facts)
