"""Which files of the state a rewind undoes, by the number in their names."""

from __future__ import annotations

from headwater.checkpoint.layout import STATE, batch_id, state_file


def is_newer_state(folder: str, name: str, next_batch: int) -> bool:
    """Return whether a file has a version above the one that a batch starts from, or metadata from that batch on."""
    bare = bare_name(name)
    parts = folder.split("/")
    if len(parts) >= 4 and parts[2] == "_metadata" and parts[3] == "v2":
        number = batch_id(bare)
        return number is not None and number >= next_batch
    if len(parts) >= 4 and parts[2] == "_stateSchema":
        number = batch_id(bare.partition("_")[0])
        return number is not None and number >= next_batch
    file = state_file(bare) if parts[0] == STATE else None
    return file is not None and file.version > next_batch


def bare_name(name: str) -> str:
    """Return the name of the file that a checksum file belongs to, also for nested ones; otherwise the name itself."""
    while name.endswith(".crc") and len(name) > len(".crc"):
        name = name[1:-4] if name.startswith(".") else name[:-4]
    return name
