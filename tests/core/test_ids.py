"""Identifiers of batches, versions and stores."""

from __future__ import annotations

from headwater.core.ids import BatchId, StateVersion, StoreKey, batch_that_wrote, version_written_by


def test_batch_and_version_are_inverse() -> None:
    """A batch writes the version after its own number, and the version leads back to the batch."""
    assert version_written_by(BatchId(0)) == 1
    assert batch_that_wrote(StateVersion(8)) == 7


def test_only_named_stores_have_a_folder_of_their_own() -> None:
    """The default store uses its partition's folder, any other store a folder below it."""
    assert StoreKey(0, 3).folder == "state/0/3"
    assert StoreKey(1, 2, "left-keyToNumValues").folder == "state/1/2/left-keyToNumValues"


def test_store_as_messages_show_it() -> None:
    """A store is shown by operator, name and partition."""
    assert str(StoreKey(1, 2, "left-keyToNumValues")) == "operator 1, store left-keyToNumValues, partition 2"
