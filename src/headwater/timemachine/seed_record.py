"""What a checkpoint records about the history that it was seeded from."""

from __future__ import annotations

from headwater.checkpoint.filetree import FileTree
from headwater.checkpoint.layout import HEADWATER_FOLDER
from headwater.core.errors import ChangeRefused

SEED_FILE = f"{HEADWATER_FOLDER}/seeded_from.json"


def was_seeded(files: FileTree) -> bool:
    """Return whether the first batches of a checkpoint come from history that its sources do not have."""
    return files.exists(SEED_FILE)


def refuse_before_seed(files: FileTree, next_batch: int) -> None:
    """Raise ``ChangeRefused`` if batch 0 is to run again although it read history, and not the source."""
    if next_batch == 0 and was_seeded(files):
        raise ChangeRefused(
            "seeded",
            "batch 0 of this checkpoint cannot run again: its input was history, which the source does not have",
            evidence={"checkpoint": files.location, "record": SEED_FILE},
            remedy="keep at least batch 0, or seed a new checkpoint: headwater seed JOB --from HISTORY --at POSITION",
        )
