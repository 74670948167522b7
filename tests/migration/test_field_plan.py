"""Which fields of which store change, without Spark."""

from __future__ import annotations

import pytest

from headwater.checkpoint.plan_record import StatefulOperator
from headwater.core.errors import ChangeRefused
from headwater.migration.field_plan import StorePlan, Wishes, plan_fields
from headwater.migration.plan_text import BUFFER_SIZES
from headwater.migration.state_shapes import Field, OperatorShape, StoreShape

USER, COUNT, TOTAL = Field("user", "string"), Field("count", "bigint"), Field("sum", "bigint")
NOTHING = Wishes()


def operator(
    *value: Field, key: tuple[Field, ...] = (USER,), name: str = "stateStoreSave", id: int = 0
) -> OperatorShape:
    return OperatorShape(id, name, (StoreShape("", "rows", key, value),))


def aggregation(*aggregates: str) -> StatefulOperator:
    return StatefulOperator("aggregation", {"aggregates": aggregates, BUFFER_SIZES: ("1",) * len(aggregates)})


def planned(old: OperatorShape, new: OperatorShape, wishes: Wishes = NOTHING) -> StorePlan:
    (store,) = plan_fields((old,), (new,), wishes).stores
    return store


def origins(store: StorePlan) -> list[tuple[str, str, str | None]]:
    return [(one.target.name, one.origin, one.source.name if one.source else None) for one in store.value]


def test_unchanged_store() -> None:
    """A store with the same fields keeps its rows."""
    assert planned(operator(COUNT, TOTAL), operator(COUNT, TOTAL)).is_unchanged


def test_fields_are_matched_by_name() -> None:
    """Reordered fields keep their values, a new one begins with Spark's initial buffer, and a missing one is dropped."""
    last = Field("max", "timestamp")
    plan = planned(operator(COUNT, TOTAL), operator(last, COUNT))
    assert origins(plan) == [("max", "initial", None), ("count", "kept", "count")]
    assert plan.dropped == (TOTAL,)


def test_types() -> None:
    """A wider type is cast, a narrower one needs an expression, which may also replace any other origin."""
    small = Field("sum", "int")
    assert origins(planned(operator(small), operator(TOTAL))) == [("sum", "cast", "sum")]
    with pytest.raises(ChangeRefused, match="not every old value of sum"):
        planned(operator(TOTAL), operator(small))
    (given,) = planned(operator(TOTAL), operator(small), Wishes({"sum": "int(sum)"})).value
    assert (given.origin, given.expression) == ("given", "int(sum)")


def test_aggregates_are_matched_by_expression() -> None:
    """Two sums have one name in the state: only the recorded expressions tell which of them is which."""
    recorded, current = aggregation("sum(a)", "sum(b)"), aggregation("sum(b)", "sum(c)")
    plan = plan_fields(
        (operator(TOTAL, TOTAL),), (operator(TOTAL, TOTAL),), NOTHING, recorded=(recorded,), current=(current,)
    )
    kept, new = plan.stores[0].value
    assert (kept.origin, kept.aggregate) == ("kept", "sum(b)")
    assert (new.origin, new.aggregate) == ("initial", "sum(c)")
    assert len(plan.stores[0].dropped) == 1


def test_keys() -> None:
    """A renamed key is kept; a changed one needs expressions."""
    renamed, more = (Field("customer", "string"),), (USER, Field("kind", "string"))
    assert planned(operator(COUNT), operator(COUNT, key=renamed)).key[0].source == USER
    with pytest.raises(ChangeRefused, match="other fields") as refused:
        planned(operator(COUNT), operator(COUNT, key=more))
    assert "--keys" in (refused.value.remedy or "")
    plan = planned(operator(COUNT), operator(COUNT, key=more), Wishes(keys=("user", "'all'")))
    assert [one.expression for one in plan.key] == ["user", "'all'"]


def test_operators() -> None:
    """Operators keep their order: others are added or removed, and a replaced one is refused."""
    dedup = operator(name="dedupe", id=1)
    added = plan_fields((operator(COUNT),), (operator(COUNT), dedup), NOTHING)
    assert (len(added.stores), [one.name for one in added.added], added.removed) == (1, ["dedupe"], ())
    removed = plan_fields((operator(COUNT), dedup), (operator(COUNT),), NOTHING)
    assert [one.name for one in removed.removed] == ["dedupe"]
    with pytest.raises(ChangeRefused, match="not those of the checkpoint"):
        plan_fields((operator(COUNT),), (dedup,), NOTHING)
