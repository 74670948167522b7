"""Whatever is wrong with a checkpoint's files, the outcome is a result, a finding or a Headwater error."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import pytest

from checkpoint.fuzzing import Contents, mutated
from corpus_support import as_memory_files, corpus_names
from headwater.checkpoint.checks import run_checks
from headwater.checkpoint.checks.context import CheckContext
from headwater.checkpoint.history import History, files_of
from headwater.checkpoint.memory_tree import MemoryTree
from headwater.checkpoint.revisions import resolve
from headwater.core.errors import HeadwaterError
from headwater.views import batches as batch_views
from headwater.views.batch_table import batch_cells, table_layout
from headwater.views.batches import batch_as_dict, batch_in_full

SEED = int(os.environ.get("SEED", "20260701"))
ROUNDS = 50
MUTATIONS_A_ROUND = int(os.environ.get("HEADWATER_FUZZ_MUTATIONS", "10000")) // ROUNDS


def all_output(contents: Contents) -> Iterator[str]:
    """Yield everything that log, show and fsck print."""
    files = MemoryTree(contents)
    history = History(files)
    batches = history.batches()
    rows = [batch_cells(batch) for batch in batches]
    layout = table_layout(rows)
    yield from (layout.line(row) for row in rows)
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
    for finding in run_checks(CheckContext(files, now_ms=1_800_000_000_000)):
        assert finding.message
        yield json.dumps(finding.as_dict(), ensure_ascii=False)


@pytest.fixture(scope="module")
def originals() -> list[Contents]:
    """The corpus, with small checkpoints several times: the forms matter, not the sizes."""
    found = [as_memory_files(name).contents for name in corpus_names()]
    return found + sorted(found, key=len)[: len(found) // 2] * 6


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, ROUNDS))])
def test_mutations_raise_only_headwater_errors(turn: int, originals: list[Contents]) -> None:
    """No mutation of a real checkpoint raises any other exception, and all output can be printed."""
    chance = random.Random(SEED * 1000 + turn)
    for number in range(MUTATIONS_A_ROUND):
        contents, descriptions = mutated(chance.choice(originals), chance)
        try:
            for line in all_output(contents):
                line.encode("utf-8")
        except Exception as error:
            raise AssertionError(f"seed {SEED}, turn {turn}, mutation {number}: {'; '.join(descriptions)}") from error


def test_mutations_are_noticed(originals: list[Contents]) -> None:
    """Most mutations change the output, so the test above does not pass merely because nothing is read."""
    chance = random.Random(SEED)
    noticed = 0
    for _ in range(50):
        original = chance.choice(originals)
        contents, _ = mutated(original, chance)
        noticed += list(all_output(contents)) != list(all_output(original))
    assert noticed >= 40
