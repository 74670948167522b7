"""What a migration does to the fields of a store, as values: see ``field_matching`` for how they are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # reading verbs show plans too, and do without Arrow
    from headwater.statefiles.sqltypes import SqlType
    from headwater.statefiles.stores import StateTarget

Origin = Literal["kept", "cast", "nested", "initial", "null", "given", "key"]


@dataclass(frozen=True)
class Unit:
    """An aggregate function, and how many fields of a value it has."""

    aggregate: str
    size: int


@dataclass(frozen=True)
class Buffer:
    """The field of a value that has Spark's initial value: the number of the function, and the place in its buffer."""

    unit: int
    place: int


@dataclass(frozen=True)
class DroppedField:
    """An old field that no new one continues."""

    name: str
    type: str
    aggregate: str | None = None


@dataclass(frozen=True)
class FieldPlan:
    """Where the values of a field come from.

    ``source`` is the place of an old field, or of a field of the new key if the value repeats it. ``parts`` are the fields
    of a struct whose fields change, and ``lost`` those that it had. ``name`` is the name by which ``--set`` knows the field.
    """

    name: str
    type: SqlType
    nullable: bool
    origin: Origin
    source: int | None = None
    expression: str | None = None
    buffer: Buffer | None = None
    parts: tuple[FieldPlan, ...] = ()
    lost: tuple[DroppedField, ...] = ()
    aggregate: str | None = None
    old_type: str = ""
    new_type: str = ""

    def leaves(self) -> Iterator[FieldPlan]:
        """Yield the field, or the fields of a struct whose fields change."""
        if self.origin == "nested":
            for part in self.parts:
                yield from part.leaves()
        else:
            yield self


@dataclass(frozen=True)
class StorePlan:
    """What becomes of the rows of a store or variable: the fields of the new values, and the old fields that go."""

    old: StateTarget
    new: StateTarget
    value: tuple[FieldPlan, ...]
    dropped: tuple[DroppedField, ...] = ()
    by_name_only: bool = False
    keys: tuple[str, ...] | None = None
    """An expression for each field of the new key; None if keys stay as they are."""

    @property
    def is_rewritten(self) -> bool:
        """Whether stored values change; another name alone does not change them."""
        in_order = [one.source for one in self.value] == list(range(len(self.value)))
        return (
            self.keys is not None
            or bool(self.dropped)
            or not in_order
            or any(one.origin != "kept" for one in self.value)
        )

    @property
    def fields(self) -> list[FieldPlan]:
        """The new fields, with those inside of changed structs."""
        return [leaf for one in self.value for leaf in one.leaves()]

    @property
    def all_dropped(self) -> list[DroppedField]:
        """The old fields that go, with those inside of structs."""
        return [*self.dropped, *(lost for one in self.value for lost in _lost(one))]


@dataclass(frozen=True)
class RequestedFields:
    """What the user asks for: SQL for fields of the new values, by name, and for the fields of a changed key, in order.

    A name may begin with a store: ``left.site``. ``merge`` has an SQL aggregate for each field of the values, for rows that
    end up with the same key.
    """

    fields: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    merge: Mapping[str, str] = field(default_factory=dict)

    def named(self, target: StateTarget, name: str) -> str | None:
        """Return the request that names a field of a store."""
        qualifiers = [str(target.operator_id), target.var or target.store, target.store.partition("-")[0]]
        names = [name, *(f"{qualifier}.{name}" for qualifier in qualifiers)]
        return next((one for one in reversed(names) if one in self.fields), None)


def _lost(one: FieldPlan) -> Iterator[DroppedField]:
    yield from one.lost
    for part in one.parts:
        yield from _lost(part)
