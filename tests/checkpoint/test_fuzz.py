"""Whatever happens to a checkpoint's files, the outcome is a reading, a finding or a Headwater error."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import pytest

from checkpoint.fuzzing import Contents, mutated
from corpus_support import as_memory_files, corpus_names
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.scene import Scene
from headwater.checkpoint.history import History, files_of
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.revisions import resolve
from headwater.core.errors import HeadwaterError
from headwater.views import batches as batch_views
from headwater.views.batches import batch_as_dict, batch_in_full

SEED = int(os.environ.get("SEED", "20260701"))
ROUNDS = 10
MUTATIONS_A_ROUND = int(os.environ.get("HEADWATER_FUZZ_MUTATIONS", "10000")) // ROUNDS


def everything_said(contents: Contents) -> Iterator[str]:
    """All that log, show and fsck have to say, as the text that they would print."""
    files = MemoryTree(contents)
    history = History(files)
    batches = history.batches()
    rows = [batch_views.row(batch) for batch in batches]
    shape = batch_views.shape_of(rows)
    yield from (shape.line(row) for row in rows)
    yield from (json.dumps(batch_as_dict(batch), ensure_ascii=False) for batch in batches)
    for name in ("HEAD", "HEAD~2", "@10:30"):
        try:
            found = history.batch(resolve(name, history.batch_ids, history.committed_at_ms))
        except HeadwaterError as error:
            assert error.problem
            continue
        belongs = files_of(history, found)
        yield json.dumps(batch_in_full(found, belongs), ensure_ascii=False)
        yield from batch_views.batch_lines(found, belongs)
    for finding in run_checks(Scene(files, now_ms=1_800_000_000_000)):
        assert finding.message
        yield json.dumps(finding.as_dict(), ensure_ascii=False)


@pytest.fixture(scope="module")
def originals() -> list[Contents]:
    """Small checkpoints more often than large ones: it is the shapes that matter."""
    found = [as_memory_files(name).contents for name in corpus_names()]
    return found + sorted(found, key=len)[: len(found) // 2] * 6


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_every_outcome_is_a_reading_a_finding_or_an_error(turn: int, originals: list[Contents]) -> None:
    """No mutation of a real checkpoint makes a reader fail in any other way, and all that is said can be printed."""
    chance = random.Random(SEED * 1000 + turn)
    for number in range(MUTATIONS_A_ROUND):
        contents, story = mutated(chance.choice(originals), chance)
        try:
            for line in everything_said(contents):
                line.encode("utf-8")
        except Exception as error:
            raise AssertionError(f"seed {SEED}, turn {turn}, mutation {number}: {'; '.join(story)}") from error


def test_mutations_are_noticed(originals: list[Contents]) -> None:
    """Most changed bits, cuts and deletions show in what is said: the fuzz test would not pass on silence."""
    chance = random.Random(SEED)
    noticed = 0
    for _ in range(100):
        original = chance.choice(originals)
        contents, _ = mutated(original, chance)
        noticed += list(everything_said(contents)) != list(everything_said(original))
    assert noticed >= 80
