"""Which state versions can be rebuilt from which files."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from corpus_support import CorpusCheckpoint, corpus_names, sampled
from headwater.checkpoint.history import History
from headwater.checkpoint.state_folder import Recipe, StoreFiles, UniqueIdOf, no_unique_ids
from headwater.core.ids import BatchId, version_written_by


def buildable_versions(names: Iterable[str], unique_id_of: UniqueIdOf = no_unique_ids) -> set[int]:
    """Return every version above 0 that a store with these file names can rebuild."""
    store = StoreFiles(names, unique_id_of)
    return {version for version in store.versions if store.can_build(version)}


@pytest.mark.parametrize(
    ("names", "versions"),
    [
        ("1.changelog 2.changelog 3.changelog", {1, 2, 3}),
        ("1.delta 2.delta 2.snapshot 3.delta", {1, 2, 3}),
        ("2.changelog 3.changelog", set()),
        ("5.changelog 6.zip 7.changelog 9.changelog", {6, 7}),
        ("4.zip 9.zip", {4, 9}),
        ("1.changelog .2.changelog.crc 2.changelog.tmp SSTs _metadata", {1}),
        ("", set()),
    ],
)
def test_plain_names(names: str, versions: set[int]) -> None:
    """A version needs the newest snapshot up to it, or none, and all changes since."""
    assert buildable_versions(names.split()) == versions


def test_format_2_follows_the_ids_of_the_commits() -> None:
    """Of several files for a version, only the one that the commit names is valid."""
    names = ["1_a.changelog", "2_b.changelog", "2_stale.zip", "3_c.changelog"]
    ids = {1: "a", 2: "b", 3: "c"}
    assert buildable_versions(names, ids.get) == {1, 2, 3}
    assert buildable_versions(names, {1: "a", 2: "removed", 3: "c"}.get) == {1}
    assert StoreFiles(names, ids.get).recipe(3) == Recipe(None, ("1_a.changelog", "2_b.changelog", "3_c.changelog"))


def test_format_2_accepts_any_file_without_a_commit() -> None:
    """Below the oldest commit, any file of the version is accepted."""
    assert buildable_versions(["6_x.zip", "7_y.changelog"], {7: "y"}.get) == {6, 7}


def test_recipe_starts_from_the_newest_snapshot() -> None:
    """The recipe has the newest snapshot and the changes after it, in order."""
    store = StoreFiles(["1.changelog", "2.changelog", "3.zip", "4.changelog", "5.changelog", "5.zip"])
    assert store.recipe(4) == Recipe("3.zip", ("4.changelog",))
    assert store.recipe(5) == Recipe("5.zip", ())
    assert store.recipe(2) == Recipe(None, ("1.changelog", "2.changelog"))
    assert store.recipe(0) == Recipe(None, ())
    assert store.recipe(6) is None


def test_missing_version_is_named() -> None:
    """If a version cannot be rebuilt, the version whose file is missing is returned."""
    store = StoreFiles(["5.changelog", "6.changelog", "8.changelog"])
    assert (store.missing_version(6), store.missing_version(8), store.missing_version(9)) == (4, 7, 9)
    assert StoreFiles(["1.zip"]).missing_version(1) is None


@pytest.mark.parametrize("name", sampled(corpus_names()))
def test_agrees_with_spark(name: str, corpus) -> None:
    """A batch's state counts as rebuildable exactly if Spark's own reader could read it."""
    checkpoint: CorpusCheckpoint = corpus(name)
    history = History(checkpoint.files)
    tree = history.logs.state
    assert bool(tree.stores) == bool(checkpoint.answers)
    for batch in {answer.batch_id for answer in checkpoint.answers}:
        could_read = any(answer.error is None for answer in checkpoint.answers_at(batch))
        entry = history.logs.offsets.get(batch)
        keys = tree.expected(entry.shuffle_partitions if entry else None)
        version = version_written_by(BatchId(batch))
        assert keys
        assert all(tree.store(key).can_build(version) for key in keys) == could_read, f"batch {batch}"
