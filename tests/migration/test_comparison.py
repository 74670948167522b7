"""The comparison of a checkpoint with new code, without Spark."""

from __future__ import annotations

import pytest

from corpus_support import as_memory_files
from headwater.checkpoint.history import History
from headwater.checkpoint.layout import PLANS_FILE
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.plan_record import (
    RecordedPlan,
    StatefulOperator,
    is_accepted,
    plan_before,
    plans_with,
    read_plans,
    write_plan,
)
from headwater.core.errors import ChangeRefused
from headwater.migration.compare_endpoints import SourceShape, compare_mode, compare_sink, source_shape
from headwater.migration.compare_meaning import can_compare, compare_meaning
from headwater.migration.compare_sources import compare_named, compare_sources, unclear_sources
from headwater.migration.compare_state import (
    compare_delays,
    compare_operators,
    judged,
    unmatched_operators,
    with_remedies,
)
from headwater.migration.comparison import VERDICTS, Commands, Comparison, Difference, Verdict, compare_settings
from headwater.migration.operator_matching import OperatorMatch, match_operators
from headwater.migration.source_changes import match_sources
from headwater.migration.state_shapes import UNKNOWN, Field, OperatorShape, StoreShape, type_text
from headwater.timemachine.extra_batch import plan_extra_batch
from headwater.timemachine.keep import make_point
from headwater.timemachine.restore import plan_restore
from headwater.timemachine.rewind import plan_rewind
from headwater.timemachine.undo import plan_undo
from headwater.views.code_check import comparison_lines

COMMANDS = Commands("jobs.py:VISITS", "visits")
MIGRATE = "headwater migrate visits --job jobs.py:VISITS"
USER = Field("user", "string")


def operator(*value: Field, key: tuple[Field, ...] = (USER,), name: str = "stateStoreSave") -> OperatorShape:
    return OperatorShape(0, name, (StoreShape("", "rows", key, value),), 2)


def compared(old: tuple[OperatorShape, ...], new: tuple[OperatorShape, ...]) -> list[Difference]:
    try:
        match = match_operators([one.name for one in old], [one.name for one in new])
    except ChangeRefused as refused:
        return [unmatched_operators(old, new, refused, COMMANDS)]
    return list(compare_operators(old, new, match, COMMANDS))


def differences(old: OperatorShape, new: OperatorShape) -> list[tuple[str, str | None, str | None, str]]:
    found = compared((old,), (new,))
    return [(one.what, one.old, one.new, one.verdict) for one in found]


COUNT, TOTAL = Field("count", "bigint"), Field("sum", "bigint")


def test_equal_schemas_have_no_difference() -> None:
    """The same operator with the same fields has no difference."""
    assert differences(operator(COUNT, TOTAL), operator(COUNT, TOTAL)) == []


def test_each_field_is_named() -> None:
    """Added, dropped and retyped fields of a value are named one by one, and need a migration."""
    where = "operator 0 (stateStoreSave): value field"
    found = differences(operator(COUNT, TOTAL), operator(COUNT, Field("sum", "double"), Field("max", "timestamp")))
    assert found == [
        (where, "sum bigint", "sum double", "needs-migrate"),
        (where, None, "max timestamp", "needs-migrate"),
    ]
    assert differences(operator(COUNT, TOTAL), operator(COUNT)) == [(where, "sum bigint", None, "needs-migrate")]


def test_fields_of_one_name_are_told_apart() -> None:
    """Two sums are two fields: a third one is an added field."""
    found = differences(operator(TOTAL, TOTAL), operator(TOTAL, TOTAL, TOTAL))
    assert [(one[1], one[2]) for one in found] == [(None, "sum bigint")]


def test_order_of_fields_of_several_types() -> None:
    """Fields in another order, of other types, need a migration."""
    last = Field("max", "timestamp")
    (found,) = differences(operator(COUNT, last), operator(last, COUNT))
    assert found[0].endswith("value: order of fields")
    assert found[3] == "needs-migrate"


def test_renamed_fields_are_compatible() -> None:
    """Spark compares types by position, also within structs, so another name is compatible."""
    window = Field("window", "struct<start: timestamp, end: timestamp>")
    renamed = Field("w", "struct<a: timestamp, b: timestamp>")
    (found,) = differences(operator(COUNT, key=(window,)), operator(COUNT, key=(renamed,)))
    assert found[3] == "compatible"


def test_changed_key_asks_for_an_expression() -> None:
    """A key with other fields needs a migration with --keys."""
    (found,) = compared((operator(COUNT),), (operator(COUNT, key=(USER, Field("kind", "string"))),))
    assert (found.verdict, found.remedy) == ("needs-migrate", MIGRATE)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (["a"], ["a", "b"], "needs-migrate"),
        (["a", "b"], ["b"], "needs-migrate"),
        (["a", "b"], ["c", "b", "d"], "needs-migrate"),
        ([], ["a"], "needs-new-checkpoint"),
        (["a"], ["b"], "needs-new-checkpoint"),
        (["a", "a"], ["a"], "needs-new-checkpoint"),
        (["a", "b"], ["b", "a"], "needs-new-checkpoint"),
    ],
)
def test_operators(before: list[str], after: list[str], verdict: Verdict) -> None:
    """Added or removed operators can be migrated, if another one stays and it is certain which."""
    old, new = (tuple(operator(COUNT, name=name) for name in names) for names in (before, after))
    found = compared(old, new)
    assert found
    assert {one.verdict for one in found} == {verdict}


def test_operator_without_a_name() -> None:
    """Spark before 4.0 recorded no names: such an operator is taken to be the one at its place."""
    assert compared((operator(COUNT, name=UNKNOWN),), (operator(COUNT),)) == []


def test_custom_state_variables() -> None:
    """Variables may come and go; one that becomes a list may not."""

    def variables(**kinds: str) -> OperatorShape:
        stores = tuple(StoreShape(name, kind, (USER,), (COUNT,)) for name, kind in kinds.items())
        return OperatorShape(0, "transformWithStateExec", stores)

    found = compared((variables(a="value", b="map"),), (variables(a="list", c="value"),))
    assert [(one.old, one.new, one.verdict) for one in found] == [
        ("value", "list", "needs-new-checkpoint"),
        ("map count bigint", None, "compatible"),
        (None, "value count bigint", "compatible"),
    ]


def test_spark_has_the_last_word() -> None:
    """What Spark accepts is not refused, and what it refuses without a known difference still is."""
    added = compared((operator(COUNT),), (operator(COUNT, TOTAL),))
    assert [one.verdict for one in judged(added, None, COMMANDS)] == ["compatible"]
    assert judged(added, "value schema", COMMANDS) == added
    (unknown,) = judged([], "nullability", COMMANDS)
    assert (unknown.verdict, unknown.new) == ("needs-new-checkpoint", "nullability")
    removed = list(compare_operators((operator(COUNT),), (), OperatorMatch((), removed=(0,)), COMMANDS))
    assert [one.verdict for one in judged(removed, None, COMMANDS)] == ["changes-meaning"]


def test_watermark_of_an_unrecorded_checkpoint() -> None:
    """The schema of a windowed key has the watermark of the first run."""
    old, new = (
        OperatorShape(0, "stateStoreSave", (StoreShape("", "rows", (USER,), (COUNT,), delay),))
        for delay in (600_000, 1_200_000)
    )
    (found,) = compare_delays((old,), (new,), OperatorMatch(((0, 0),)), COMMANDS)
    assert (found.old, found.new, found.verdict) == ("10 minutes", "20 minutes", "changes-meaning")


def test_types_have_their_sql_names() -> None:
    """Nested types are shown as in SQL."""
    nested = {"type": "array", "elementType": {"type": "struct", "fields": [{"name": "a", "type": "long"}]}}
    assert type_text(nested) == "array<struct<a: bigint>>"
    assert type_text({"type": "map", "keyType": "string", "valueType": "integer"}) == "map<string, int>"


# ---------------------------------------------------------------------------------------------------- meaning

VISITS = StatefulOperator(
    "aggregation",
    {
        "keys": ("window(at, 5 minutes)", "user"),
        "aggregates": ("count(1)", "sum(amount)"),
        "watermark": ("at 10 minutes",),
    },
)


def changed(**facts: tuple[str, ...]) -> StatefulOperator:
    return StatefulOperator("aggregation", {**VISITS.facts, **facts})


def meanings(new: StatefulOperator, old: StatefulOperator = VISITS) -> list[tuple[str, str]]:
    return [(one.what, one.verdict) for one in compare_meaning((old,), (new,), COMMANDS)]


def test_changed_meaning_is_named() -> None:
    """Windows, expressions, watermarks and filters that changed are named, with both texts."""
    window = ("window(at, 10 minutes)", "user")
    (found,) = compare_meaning((VISITS,), (changed(keys=window),), COMMANDS)
    assert (found.what, found.old, found.new) == (
        "operator 0 (aggregation): keys",
        "window(at, 5 minutes), user",
        "window(at, 10 minutes), user",
    )
    assert found.remedy == "headwater run jobs.py:VISITS --checkpoint visits --accept-change"
    assert meanings(changed(aggregates=("count(1)", "sum((amount * 100))"))) == [
        ("operator 0 (aggregation): aggregates", "changes-meaning")
    ]
    assert meanings(changed(filters=("(amount > 1)",))) == [("operator 0 (aggregation): filters", "changes-meaning")]


def test_another_order_is_a_change_of_meaning() -> None:
    """Spark does not notice two aggregates of one type that change places."""
    assert meanings(changed(aggregates=("sum(amount)", "count(1)"))) == [
        ("operator 0 (aggregation): order of aggregates", "changes-meaning")
    ]


def test_added_aggregate_is_left_to_the_schemas() -> None:
    """Another number of aggregates changes the schema, which Spark refuses by itself."""
    assert meanings(changed(aggregates=("count(1)", "sum(amount)", "max(at)"))) == []


def test_edited_function_is_a_hint() -> None:
    """Edited Python code is reported, but whether it changes the meaning is not known."""
    old, new = changed(python=("f python3.11:aa",)), changed(python=("f python3.11:bb",))
    assert meanings(new, old) == [("operator 0 (aggregation): code of f", "compatible")]
    assert meanings(changed(python=("f python3.12:bb",)), old) == []


def test_another_release_of_spark_is_not_compared() -> None:
    """Spark may show an expression in another way in its next release."""
    plan = RecordedPlan(0, (VISITS,), "4.1.4")
    assert can_compare(plan, "4.1.0")
    assert not can_compare(plan, "4.2.0")


# ------------------------------------------------------------------------------------------ sources, sink, settings


def named(*names: str) -> list[SourceShape]:
    return [source_shape(name, f"kafka://host/{name}") for name in names]


def source_verdicts(old: list[SourceShape], new: list[SourceShape], *, has_join: bool = False) -> list[str]:
    try:
        changes = match_sources(old, new)
    except ChangeRefused as refused:
        return [unclear_sources(old, new, refused, COMMANDS).verdict]
    return [one.verdict for one in compare_sources(changes, COMMANDS, has_join=has_join)]


def test_sources_by_place() -> None:
    """Another number or order of sources can be migrated, except for the sides of a join; another kind or topic cannot."""
    assert source_verdicts(named("a", "b"), named("a", "b")) == []
    assert source_verdicts(named("a", "b"), named("b", "a")) == ["needs-migrate"]
    assert source_verdicts(named("a", "b"), named("b", "a"), has_join=True) == ["needs-new-checkpoint"]
    assert source_verdicts(named("a"), named("a", "b"), has_join=True) == ["needs-migrate"]
    assert source_verdicts(named("a", "b", "c"), named("b", "d")) == ["needs-migrate"] * 3
    assert source_verdicts([source_shape("", "files:in")], [source_shape("", "kafka://h/in")]) == [
        "needs-new-checkpoint"
    ]
    assert source_verdicts([source_shape("", "kafka://h/a")], [source_shape("", "kafka://h/b")]) == [
        "needs-new-checkpoint"
    ]
    assert source_verdicts([source_shape("", "kafka://h/a")], [source_shape("", "kafka://other/a?x=1")]) == []


def test_unknown_source_is_no_difference() -> None:
    """A source of a kind that cannot be known is not reported as changed."""
    assert source_verdicts([SourceShape("", "unknown")], named("a")) == []


def test_sources_by_name() -> None:
    """Sources with names in the offset log may be added, removed and reordered."""
    found = compare_named(named("a", "b"), named("b", "a", "c"), COMMANDS)
    assert [one.verdict for one in found] == ["compatible"]


def test_mode_and_sink() -> None:
    """Another output mode changes the rows that a sink receives; a file sink cannot move; others can."""
    assert [one.verdict for one in compare_mode("update", "append", COMMANDS, has_state=True)] == ["changes-meaning"]
    assert list(compare_mode(None, "append", COMMANDS, has_state=True)) == []
    moved = compare_sink("files:/a", "files:/b", "/a", "/b", COMMANDS)
    assert [one.verdict for one in moved] == ["needs-new-checkpoint"]
    assert [one.verdict for one in compare_sink("console:", "kafka://h/t", None, None, COMMANDS)] == ["compatible"]
    assert list(compare_sink("kafka://h/t?a=1", "kafka://h/t?a=2", None, None, COMMANDS)) == []


def test_settings_that_the_checkpoint_overrides() -> None:
    """A given setting that the checkpoint records differently is named; partitions have a command of their own."""
    name = "spark.sql.shuffle.partitions"
    (found,) = compare_settings({name: "2", "other": "x"}, {name: "4", "unrecorded": "y"}, COMMANDS)
    assert (found.old, found.new, found.verdict) == ("2", "4", "compatible")
    assert found.remedy == "headwater repartition visits 4"


# ------------------------------------------------------------------------------------------------------- verdict


def test_verdict_is_the_most_severe() -> None:
    """One difference that needs a migration decides over any number of harmless ones."""
    found = [Difference("x", None, None, verdict, "because") for verdict in VERDICTS[1:4]]
    comparison = Comparison("visits", "ckpt", tuple(found))
    assert comparison.verdict == "needs-migrate"
    assert (comparison.starts, comparison.is_safe) == (False, False)
    assert Comparison("visits", "ckpt").verdict == "same"
    assert comparison.as_dict()["differences"][0].keys() >= {"what", "old", "new", "remedy"}


def test_text_names_the_verdict_and_each_difference() -> None:
    """The text begins with the verdict, and shows both sides of each difference."""
    one = Difference("operator 0: keys", "a", None, "changes-meaning", "because", "headwater …")
    lines = comparison_lines(Comparison("visits", "ckpt", (one,), ("not compared",)))
    assert lines[0] == "visits on ckpt: compatible but changes meaning"
    assert "    checkpoint  a" in lines
    assert "    code        none" in lines
    assert lines[-1] == "note: not compared"


# -------------------------------------------------------------------------------------------------------- record


def test_record_survives_rewinds() -> None:
    """The plan that wrote the state before a batch is found, also after a rewind to an earlier batch."""
    files = MemoryTree()
    first, second, third = (RecordedPlan(since, (changed(keys=(str(since),)),), "4.2.0") for since in (0, 7, 5))
    write_plan(files, first)
    write_plan(files, RecordedPlan(3, first.operators, "4.2.0"))
    write_plan(files, second)
    plans = read_plans(files)
    assert [plan.since_batch for plan in plans] == [0, 7]
    assert plan_before(plans, 0) is None
    assert plan_before(plans, 7) == first
    assert plan_before(plans, 8) == second
    write_plan(files, third)  # rewound to batch 4, then run with other code
    assert plan_before(read_plans(files), 10) == third
    assert plan_before(read_plans(files), 5) == first


def run(files: MemoryTree, since: int, keys: str, *, accepted: bool = False) -> str | None:
    """Record a run from a batch on; return the keys of the code that it is compared with."""
    before = plan_before(read_plans(files), since)
    write_plan(files, RecordedPlan(since, (changed(keys=(keys,)),), "4.2.0", accepted=("keys",) if accepted else ()))
    return before.operators[0].facts["keys"][0] if before else None


def test_record_is_that_of_the_code_that_wrote_the_state() -> None:
    """Code whose batches were rewound is not in the record any more, and undo brings it back."""
    files = as_memory_files("aggregation-changelog")
    run(files, 0, "old")
    run(files, 7, "new", accepted=True)
    plan_rewind(files, to=4).apply(allow_missing_input=True)
    assert run(files, 5, "old") == "old"
    assert run(files, 8, "old") == "old"
    plan_undo(files).apply()
    assert run(files, 10, "new") == "new"


def test_record_of_code_that_ran_between_a_rewind_and_its_undo() -> None:
    """Undo drops its batches, and its entry with them."""
    files = as_memory_files("aggregation-changelog")
    start = dict(files.contents)
    run(files, 0, "old")
    plan_rewind(files, to=4).apply(allow_missing_input=True)
    run(files, 5, "new", accepted=True)
    files.contents |= {path: data for path, data in start.items() if path.startswith("commits/5")}
    plan_undo(files, drop_newer=True).apply()
    assert run(files, 10, "old") == "old"


def test_record_of_code_that_ran_after_an_edit() -> None:
    """The undo of an edit removes the entries of later batches, although the edit left the record as it was."""
    files = as_memory_files("aggregation-changelog")
    run(files, 0, "old")
    plan_extra_batch(History(files), {}, verb="edit", about="an edit").apply(files, None)
    run(files, 11, "new", accepted=True)
    plan_undo(files).apply()
    assert run(files, 10, "old") == "old"
    assert run(files, 12, "old") == "old"


def test_record_of_a_restore_point() -> None:
    """A rewind to a point brings back its record; code that was accepted for the next batch stays accepted."""
    files = as_memory_files("aggregation-changelog")
    run(files, 0, "old")
    run(files, 8, "new", accepted=True)
    point = make_point(files, at="7")
    plan_rewind(files, to=2).apply(allow_missing_input=True)
    run(files, 3, "other", accepted=True)
    plan_restore(files, point).apply(allow_missing_input=True)
    plans = read_plans(files)
    assert [plan.since_batch for plan in plans] == [0, 8]
    assert is_accepted(plans, 8, plans[-1].operators)
    plan_undo(files).apply()
    assert [plan.since_batch for plan in read_plans(files)] == [0, 3]


def test_record_after_the_undo_of_a_rewind_by_an_earlier_release() -> None:
    """Such a rewind left the record as it was, with the entries of the batches that return now."""
    files = as_memory_files("aggregation-changelog")
    plan_rewind(files, to=4).apply(allow_missing_input=True)
    run(files, 0, "old")
    run(files, 7, "new", accepted=True)
    plan_undo(files).apply()
    assert run(files, 10, "new") == "new"


def test_change_that_was_accepted_for_a_migration() -> None:
    """It is not accepted for the state from before the migration."""
    files = as_memory_files("aggregation-changelog")
    run(files, 0, "old")
    point = make_point(files)
    migrated = RecordedPlan(10, (changed(keys=("new",)),), "4.2.0", accepted=("keys",))
    records = {PLANS_FILE: plans_with(files, migrated)}
    plan_extra_batch(History(files), {}, verb="migrate", about="m", records=records).apply(files, None)
    assert is_accepted(read_plans(files), 10, migrated.operators)
    plan_rewind(files, to=9).apply(allow_missing_input=True)
    assert not is_accepted(read_plans(files), 10, migrated.operators)
    plan_undo(files).apply()
    assert is_accepted(read_plans(files), 10, migrated.operators)
    plan_restore(files, point).apply(allow_missing_input=True)
    assert not is_accepted(read_plans(files), 10, migrated.operators)


def test_accepted_change_is_recorded() -> None:
    """What the user accepted is in the record, also if the operators stay the same."""
    files = MemoryTree()
    write_plan(files, RecordedPlan(0, (VISITS,), "4.2.0"))
    write_plan(files, RecordedPlan(4, (VISITS,), "4.2.0", accepted=("output mode: update → append",)))
    assert [plan.accepted for plan in read_plans(files)] == [(), ("output mode: update → append",)]


def test_accepted_change_stays_accepted() -> None:
    """A run that was killed before its first batch can be started again without accepting the change again."""
    accepted = RecordedPlan(4, (VISITS,), "4.2.0", accepted=("keys",))
    plans = (RecordedPlan(0, (changed(keys=("kind",)),), "4.2.0"), accepted)
    assert is_accepted(plans, 4, (VISITS,))
    assert not is_accepted(plans, 4, (changed(keys=("page",)),))
    assert not is_accepted(plans, 5, (VISITS,))
    assert not is_accepted((*plans, RecordedPlan(4, plans[0].operators, "4.2.0")), 4, (VISITS,))


@pytest.mark.parametrize("data", [b"", b"{", b'{"plans": 3}', b'{"plans": [{"since_batch": "x"}]}', b"[]"])
def test_damaged_record_counts_as_none(data: bytes) -> None:
    """A record that cannot be read is as good as none."""
    files = MemoryTree()
    files.write("_headwater/plans.json", data)
    assert read_plans(files) == ()


def test_remedies_name_a_migration_only_where_it_helps() -> None:
    """A migration that needs more options names them; one that is refused means a new checkpoint, with the reason."""
    differences = compared((operator(COUNT),), (operator(COUNT, TOTAL),))
    assert with_remedies(differences, None, COMMANDS) == differences
    (asked,) = with_remedies(differences, ChangeRefused("x", "no value", remedy="--set sum=SQL"), COMMANDS)
    assert (asked.verdict, asked.remedy) == ("needs-migrate", f"{MIGRATE} --set sum=SQL")
    (unclear,) = with_remedies(differences, ChangeRefused("ambiguous-fields", "which is which", remedy="run"), COMMANDS)
    assert (unclear.verdict, (unclear.remedy or "").partition("   ")[0]) == (
        "needs-migrate",
        "headwater run jobs.py:VISITS --checkpoint visits",
    )
    (refused,) = with_remedies(differences, ChangeRefused("x", "no way"), COMMANDS)
    assert (refused.verdict, refused.remedy) == ("needs-new-checkpoint", COMMANDS.new_checkpoint)
    assert refused.why.endswith("a migration is refused: no way")
