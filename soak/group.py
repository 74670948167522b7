"""A group of stories: each in a process of its own, all of them on one JVM, which is killed for all of them at once."""

from __future__ import annotations

import io
import multiprocessing
import os
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from soak import checks, ledger
from soak.environment import StoryEnvironment
from soak.meeting import Host, Meeting
from soak.runner import StoryRunner
from soak.services import Services
from soak.story import GROUP, Event, Kill, Story, describe_action, events_of_group, generate_story

FORK = multiprocessing.get_context("fork")


def run_group(seeds: Sequence[int], services: Services, *, verbose: bool) -> Iterator[dict[str, Any]]:
    """Run stories of one group side by side and yield their lines for the ledger, in the order of the seeds."""
    stories = {seed: generate_story(seed, services.spark) for seed in seeds}
    services.start(story.cell for story in stories.values())
    connections: dict[Connection, int] = {}
    processes = []
    for story in stories.values():
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=_tell_story, args=(story, services, theirs, verbose))
        process.start()
        theirs.close()
        connections[ours] = story.seed
        processes.append(process)
    lines: dict[int, dict[str, Any]] = {}

    def end(seed: int, line: dict[str, Any] | None) -> None:
        lines[seed] = line or _ledger_line(stories[seed], services.spark, None, "the process of the story ended", 0.0)
        print(f"story {seed}: {lines[seed]['cell']}: {lines[seed]['outcome'].splitlines()[0]}", flush=True)

    try:
        host = Host(connections, end)
        for _, event in sorted(events_of_group(seeds[0] // GROUP).items()):
            host.hold(partial(_happen, event, services), event.quorum if isinstance(event, Kill) else 1.0)
        host.wait_for_ends()
    finally:
        for process in processes:
            process.kill() if len(lines) < len(processes) else process.join()
    for seed in seeds:
        yield lines[seed]


def _happen(event: Event, services: Services) -> None:
    if isinstance(event, Kill):
        services.kill_worker(python_only=event.python_only)
    else:
        for service in ("broker", "postgresql"):
            services.restart(service, crash=event.crash)


def _tell_story(story: Story, services: Services, group: Connection, verbose: bool) -> None:
    """Run one story and send its line for the ledger; a failed story is printed and its folder is kept."""
    folder = services.folder / f"story-{story.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    transcript = [f"story {story.seed}: {story.cell.name}, {story.retained_batches} batches retained"]
    outcome, runner = "good", None
    try:
        runner = StoryRunner(StoryEnvironment(story, folder, services), Meeting(group))
        for number, action in enumerate(story.actions, 1):
            transcript.append(f"{number:>3}. {describe_action(action)}")
            started = time.monotonic()
            transcript[-1] += f"  →  {runner.perform(action)} ({time.monotonic() - started:.1f} s)"
        transcript.append(f"     at the end: {runner.inspect_all()}")
        checks.check_no_secret(runner.env)
    except Exception as error:
        outcome = _without_paths(f"{type(error).__name__}: {error}"[:2000], folder, services)
        report = io.StringIO()
        traceback.print_exc(file=report)
        transcript += [report.getvalue(), f"kept: {folder}", f"to repeat: {_repeating(story, services)}"]
        print("\n".join(transcript), file=sys.stderr, flush=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
        if verbose:
            print("\n".join(transcript), flush=True)
    group.send(_ledger_line(story, services.spark, runner, outcome, time.monotonic() - began))
    sys.stdout.flush()
    os._exit(0)  # threads of clients must not delay the group


def _without_paths(text: str, folder: Path, services: Services) -> str:
    """Return a text for the ledger, which has no paths of the machine."""
    environment = Path(services.python).parent.parent
    for path, name in ((folder, "STORY"), (services.folder, "SOAK"), (environment, "ENVIRONMENT")):
        text = text.replace(str(path), name)
    return text


def _repeating(story: Story, services: Services) -> str:
    version = "" if services.python == sys.executable else f" --spark {services.spark.rpartition('.')[0]}"
    return f"python -m soak --seed {story.seed}{version}"


def _ledger_line(story: Story, spark: str, runner: StoryRunner | None, outcome: str, seconds: float) -> dict[str, Any]:
    return {
        "seed": story.seed,
        "commit": ledger.commit(),
        "spark": spark,
        "cell": story.cell.name,
        "actions": len(story.actions),
        "tally": dict(runner.tally) if runner else {},
        "refused": dict(runner.refused) if runner else {},
        "seconds": round(seconds, 1),
        "outcome": outcome,
    }
