"""A migration to another state store as text."""

from __future__ import annotations

from headwater.checkpoint.signs_of_life import running_warnings
from headwater.core.text import count
from headwater.migration.store_migration_plan import StoreMigrationPlan
from headwater.views.plans import PlanText, file_counts


def store_migration_text(plan: StoreMigrationPlan) -> PlanText:
    """Describe a migration to another store: both forms, the batch that it adds, and the settings to continue with."""
    facts = [
        ("from", plan.before.text),
        ("to", plan.after.text),
        ("rows", f"{count(plan.rows, 'row')}, unchanged" if plan.rows else "unchanged"),
        ("added", f"batch {plan.batch_id}, which reads no input"),
        ("written", file_counts(plan.written)),
    ]
    settings = [f"{name}={value}" for name, value in plan.after.conf.items()]
    facts += [("continue with" if number == 0 else "", text) for number, text in enumerate(settings)]
    if plan.reason:
        facts.append(("reason", plan.reason))
    warnings = (*plan.warnings, *running_warnings(plan.signs_of_life))
    return PlanText(f"Migrate the state of {plan.location} to another store", tuple(facts), warnings)
