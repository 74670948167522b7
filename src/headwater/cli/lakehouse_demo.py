"""``headwater demo --lakehouse``: two jobs on Delta tables, a bad deployment, and the rewind of both jobs and tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from shlex import join
from typing import Any

from headwater.cli.child_processes import run_command
from headwater.cli.output import StatusLine, say, table
from headwater.core.errors import JobFailed

# The sales of each file: store, amount, time.
FILES = (
    (("north", 1200, "10:02"), ("south", 800, "10:14")),
    (("north", 2900, "10:16"), ("south", 100, "10:08")),
    (("north", 500, "10:31"), ("south", 700, "10:20")),
    (("north", 300, "10:33"), ("south", 900, "10:40")),
)
GOOD_FILES = 2


class LakehouseDemo:
    """The steps of the demo. Every command is shown, and can be repeated by the reader."""

    def __init__(self, home: Path, is_stopped: Callable[[], bool]) -> None:
        self._home, self._is_stopped = home, is_stopped
        self._line = StatusLine()
        self._good: dict[str, int] = {}
        self._landing, self._bronze, self._totals = home / "landing", home / "lake/bronze", home / "lake/totals"

    def run(self) -> None:
        """Run the steps until the end, or until the user stops the demo."""
        steps: tuple[Callable[[], None], ...] = (self._start, self._deploy_bad_code, self._rewind, self._run_again)
        for step in steps:
            if self._is_stopped():
                return
            step()

    def _start(self) -> None:
        say(
            "Files land, retail-sales-bronze copies them to a Delta table, and retail-sales-lakehouse merges totals of it."
        )
        self._land(0, GOOD_FILES)
        self._run_both()
        self._good = {name: self._last_batch(name) for name in ("bronze", "totals")}
        self._show_totals()

    def _deploy_bad_code(self) -> None:
        say("\nA bad deployment: amounts are taken for cents and multiplied by 100. Two more files land.")
        self._land(GOOD_FILES, len(FILES))
        self._run_both("--set", "scale=100")
        self._show_totals()

    def _rewind(self) -> None:
        say("\nRewind both jobs to their last batch before the deployment. Each takes its table along.")
        for name in ("bronze", "totals"):
            self._command("rewind", str(self._checkpoint(name)), "--to", str(self._good[name]), "--yes", shown=True)
        self._show_totals()

    def _run_again(self) -> None:
        say("\nThe corrected code runs again. Each table gets every row exactly once.")
        self._run_both()
        self._show_totals()
        expected, found = _expected(), {(row["store"], row["from"]): row["sales"] for row in self._rows()}
        if self._is_stopped():
            return
        if found != expected:
            raise JobFailed(
                "demo-failed", "the totals differ from the files", evidence={"files": expected, "table": found}
            )
        say("\nThe totals are those of the files. Next, look around:")
        say(f"  headwater log {self._checkpoint('totals')}")
        say(f"  headwater undo {self._checkpoint('totals')}        (the table returns as well)")
        say(f"  headwater fsck {self._checkpoint('bronze')}")

    def _land(self, first: int, last: int) -> None:
        self._landing.mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            sales = [
                {"store": store, "counter": 1, "amount": amount, "sold_at": f"2024-05-01T{at}:00Z"}
                for store, amount, at in FILES[number]
            ]
            file = self._landing / f"{number}.json"
            file.write_text("".join(f"{json.dumps(sale)}\n" for sale in sales))
            os.utime(file, (1_700_000_000 + number,) * 2)

    def _run_both(self, *settings: str) -> None:
        bronze, totals = f"delta:{self._bronze}", f"delta:{self._totals}"
        landing = f"files:{self._landing}?maxFilesPerTrigger=1"
        to_bronze = ("--source", landing, "--sink", f"{bronze}?partition_by=day", *settings)
        self._run_job("retail-sales-bronze", "bronze", *to_bronze)
        self._run_job("retail-sales-lakehouse", "totals", "--source", bronze, "--sink", totals)

    def _run_job(self, job: str, name: str, *options: str) -> None:
        ends = ("--checkpoint", str(self._checkpoint(name)), "--trigger", "available-now")
        self._command("run", job, *options, *ends)

    def _last_batch(self, name: str) -> int:
        return max((int(file.name) for file in self._checkpoint(name).glob("commits/[0-9]*")), default=0)

    def _checkpoint(self, name: str) -> Path:
        return self._home / "checkpoints" / name

    def _command(self, *arguments: str, shown: bool = False) -> None:
        if self._is_stopped():
            return
        say(f"$ headwater {join(arguments)}")
        self._line.show("running ...")
        done = run_command(arguments, ignore_interrupts=True)
        self._line.clear()
        if done.returncode:
            problem = f"`headwater {join(arguments)}` failed"
            raise JobFailed("demo-failed", problem, evidence={"output": done.stderr.strip()})
        if shown:
            say("".join(f"  {line}\n" for line in done.stdout.splitlines()).rstrip())

    def _show_totals(self) -> None:
        if self._is_stopped():
            return
        rows = sorted(self._rows(), key=lambda row: (row["from"], row["store"]))
        table(
            ("window", "store", "sales", "receipts"), [(r["from"], r["store"], r["sales"], r["receipts"]) for r in rows]
        )

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of the totals, read without Spark."""
        from urllib.parse import unquote

        from pyarrow import parquet

        from headwater.checkpoint.local_tree import LocalTree
        from headwater.lakehouse.delta_log import DeltaLog

        log = DeltaLog(LocalTree(self._totals))
        files = log.snapshot(log.head).files.values() if log.exists else ()
        found = [row for file in files for row in parquet.read_table(self._totals / unquote(file["path"])).to_pylist()]
        return [{**row, "from": f"{row['window']['start']:%H:%M}"} for row in found]


def _expected() -> dict[tuple[str, str], int]:
    """Return the total of each store and window of 15 minutes, as the files have them."""
    found: dict[tuple[str, str], int] = {}
    for file in FILES:
        for store, amount, at in file:
            hour, minute = at.split(":")
            start = f"{hour}:{int(minute) // 15 * 15:02d}"
            found[(store, start)] = found.get((store, start), 0) + amount
    return found
