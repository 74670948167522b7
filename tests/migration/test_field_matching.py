"""Which fields of a store a migration keeps, casts, adds and drops, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.core.errors import ChangeRefused
from headwater.migration.field_matching import plan_store, same_key
from headwater.migration.field_plan import RequestedFields, StorePlan, Unit
from headwater.migration.wider_types import without_casts
from headwater.statefiles.schemafile import FamilySchema
from headwater.statefiles.stores import StateTarget

Fields = dict[str, Any]


def struct(fields: Fields) -> dict[str, Any]:
    listed = [
        {"name": name.rstrip("!*"), "type": kind, "nullable": not name.endswith("!"), "metadata": {}}
        for name, kind in fields.items()
    ]
    return {"type": "struct", "fields": listed}


def target(value: Fields, key: Fields | None = None, operator: str = "stateStoreSave") -> StateTarget:
    schema = FamilySchema("schema", "default", json.dumps(struct(key or {"user": "string"})), json.dumps(struct(value)))
    return StateTarget(0, operator, "default", None, "rows", "default", None, schema)


def planned(
    old: Fields, new: Fields, before: list[Unit] | None, after: list[Unit] | None, **requested: str
) -> StorePlan:
    return plan_store(target(old), target(new), RequestedFields(requested), recorded=before, current=after)


def origins(plan: StorePlan) -> list[tuple[str, str, int | None]]:
    return [(one.name, one.origin, one.source) for one in plan.fields]


COUNT, SUM_A, SUM_B, MAX = Unit("count(1)", 1), Unit("sum(a)", 1), Unit("sum(b)", 1), Unit("max(at)", 1)
AVG = Unit("avg(a)", 2)


def test_unchanged() -> None:
    """A store whose functions are the same is not rewritten."""
    plan = planned({"count": "long"}, {"count": "long"}, [COUNT], [COUNT])
    assert not plan.is_rewritten


def test_functions_are_matched_by_their_expressions() -> None:
    """The state names both sums alike: the recorded expressions distinguish them."""
    plan = planned(
        {"sum": "long", "sum*": "long", "count": "long"},
        {"count": "long", "sum": "long", "max": "timestamp"},
        [SUM_A, SUM_B, COUNT],
        [COUNT, SUM_B, MAX],
    )
    assert origins(plan) == [("count", "kept", 2), ("sum", "kept", 1), ("max", "initial", None)]
    assert [(one.name, one.aggregate) for one in plan.dropped] == [("sum", "sum(a)")]
    assert plan.is_rewritten


def test_another_expression_is_another_function() -> None:
    """A sum of something else does not continue the old sum, although types and names agree."""
    plan = planned({"sum": "long"}, {"sum": "long"}, [SUM_A], [Unit("sum((a * 100))", 1)])
    assert (origins(plan), plan.dropped[0].aggregate) == ([("sum", "initial", None)], "sum(a)")


def test_fields_of_a_function_stay_together() -> None:
    """A function that needs more fields than before begins again with all of them."""
    plan = planned({"sum": "long"}, {"sum": "decimal(20,2)", "isEmpty!": "boolean"}, [SUM_A], [Unit("sum(a)", 2)])
    assert origins(plan) == [("sum", "initial", None), ("isEmpty", "initial", None)]


def test_wider_types_are_cast() -> None:
    """A sum of a cast continues the sum without the cast if its field has become wider, and only then."""
    wider = Unit("sum(cast(a as double))", 1)
    assert origins(planned({"sum": "long"}, {"sum": "double"}, [SUM_A], [wider])) == [("sum", "cast", 0)]
    same = Unit("sum(cast(a as int))", 1)
    assert origins(planned({"sum": "long"}, {"sum": "long"}, [SUM_A], [same])) == [("sum", "initial", None)]
    with pytest.raises(ChangeRefused, match="the new type of sum cannot represent") as refused:
        planned({"sum": "double"}, {"sum": "long"}, [SUM_A], [SUM_A])
    assert (refused.value.remedy or "").startswith("--set sum=SQL")
    (given,) = planned({"sum": "double"}, {"sum": "long"}, [SUM_A], [SUM_A], sum="round(sum)").fields
    assert (given.origin, given.expression) == ("given", "round(sum)")


def test_copies_of_keys_are_matched_by_position() -> None:
    """Session windows repeat the key in the value, where it may have another name now."""
    plan = planned(
        {"session_window": "string", "user": "string", "count": "long"},
        {"session_window": "string", "customer": "string", "max": "timestamp", "count": "long"},
        [COUNT],
        [MAX, COUNT],
    )
    assert [one.source for one in plan.fields] == [0, 1, None, 2]


def test_without_a_record_fields_are_matched_by_name() -> None:
    """What is ambiguous is refused; the rest is matched, and the plan says how."""
    plan = planned(
        {"count": "long", "sum": "long"},
        {"sum": "double", "count": "long", "max": "timestamp"},
        None,
        [AVG, MAX],
    )
    assert [one.origin for one in plan.fields] == ["initial", "initial", "initial"]
    plan = planned({"count": "long", "sum": "long"}, {"sum": "long", "count": "long"}, None, [SUM_A, COUNT])
    assert plan.by_name_only
    assert [one.source for one in plan.fields] == [1, 0]
    with pytest.raises(ChangeRefused, match="which is which") as refused:
        planned({"sum": "long"}, {"sum": "long", "sum*": "long"}, None, [SUM_A, SUM_B])
    assert (refused.value.remedy or "").endswith("headwater run JOB --checkpoint CKPT")


def test_fields_of_rows() -> None:
    """The rows of other operators have no functions: fields are matched by name, and new ones are null."""
    plan = planned({"site": "string", "at": "timestamp"}, {"at": "timestamp", "ad": "string"}, None, None)
    assert origins(plan) == [("at", "kept", 1), ("ad", "null", None)]
    with pytest.raises(ChangeRefused, match="a new field that cannot be null"):
        planned({"site": "string"}, {"site": "string", "n!": "long"}, None, None)


def test_nested_fields() -> None:
    """Fields of a struct are planned one by one, and can be set by their path."""
    old, new = struct({"total": "integer", "old": "long"}), struct({"note": "string", "total": "long"})
    plan = plan_store(
        target({"groupState": old}), target({"groupState": new}), RequestedFields({"groupState.note": "'x'"})
    )
    assert origins(plan) == [("groupState.note", "given", None), ("groupState.total", "cast", 0)]
    assert [one.name for one in plan.all_dropped] == ["groupState.old"]


def test_a_request_may_name_the_store() -> None:
    """A field may be named with its operator or store, which several stores may share."""
    assert RequestedFields({"0.sum": "1"}).named(target({}), "sum") == "0.sum"
    assert RequestedFields({"default.sum": "1"}).named(target({}), "sum") == "default.sum"
    assert RequestedFields({"sum": "1"}).named(target({}), "count") is None


def test_keys() -> None:
    """Keys are the same bytes if their types are the same: names do not matter, types and order do."""
    assert same_key(target({}), target({}, {"customer": "string"}))
    assert not same_key(target({}), target({}, {"user": "long"}))
    assert not same_key(target({}), target({}, {"user": "string", "kind": "string"}))


def test_casts() -> None:
    """Nested casts are removed; other calls stay."""
    assert without_casts("sum((cast(a as double) + cast(cast(b as int) as decimal(10,2))))") == "sum((a + b))"
    assert without_casts("sum(length(a))") == "sum(length(a))"


def test_sides_of_a_join() -> None:
    """A side may get fields or lose some. One that does both may be the other side, and needs a value for each field."""

    def side(*names: str) -> StateTarget:
        return target(dict.fromkeys(names, "string"), operator="symmetricHashJoin")

    assert [one.origin for one in plan_store(side("ad"), side("ad", "site"), RequestedFields()).fields] == [
        "kept",
        "null",
    ]
    assert [one.name for one in plan_store(side("ad", "site"), side("ad"), RequestedFields()).dropped] == ["site"]
    with pytest.raises(ChangeRefused, match="rows of one side of the join"):
        plan_store(side("ad", "site"), side("viewer", "clicked"), RequestedFields())
    given = RequestedFields({"viewer": "ad", "clicked": "site"})
    assert plan_store(side("ad", "site"), side("viewer", "clicked"), given).is_rewritten
