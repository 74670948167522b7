"""The folder that a scenario's job reads as one of its static tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headwater.jobs.endpoints import Decoding, Delta, Files, Static
from headwater.jobs.job import Job
from headwater.testing.records import Fed, as_lines


class TableFolder:
    """The rows that a test gives to a static table, whatever the job reads the table from."""

    def __init__(self, folder: Path, job: Job, name: str, schema: str | None) -> None:
        if name not in job.statics:
            known = ", ".join(job.statics) or "none"
            raise ValueError(f"{job.name} has no static table {name!r}; its static tables: {known}")
        original = job.statics[name]
        table = original.table
        self._folder = folder / f"table-{name}"
        self._folder.mkdir(parents=True)
        self._files = 0
        chosen = schema or (table.schema if isinstance(table, Files | Delta) else None)
        if chosen is None:
            raise ValueError(
                f"{job.name} reads {name} without a schema, so the scenario needs one: "
                f'scenario(JOB, tables=..., schema={{"{name}": "..."}})'
            )
        # Raw lines mean what they mean in the job's own files if these have the same format.
        decode = table.decode if isinstance(table, Files) and (table.format or "json") == "json" else {}
        self._decoding = Decoding(chosen, "json", decode)
        self.static: Static = replace(original, table=Files(str(self._folder), chosen, "json", decode=decode))

    def replace(self, rows: Sequence[Fed]) -> list[str]:
        """Replace all rows of the table, and return them as the lines of its new file."""
        lines = as_lines(rows, self._decoding, ())
        before = list(self._folder.iterdir())
        self._files += 1
        file = self._folder / f"{self._files:06d}.json"
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for old in before:
            old.unlink()
        return lines
