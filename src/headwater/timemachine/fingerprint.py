"""What a plan was made from. A plan is carried out only on the checkpoint that it was made for."""

from __future__ import annotations

import hashlib
import json

from headwater.checkpoint.files import Files
from headwater.checkpoint.layout import COMMITS, OFFSETS, SINK_LOG, SOURCES, STATE


def fingerprint(checkpoint: Files, sink: Files | None) -> str:
    """Changes with every batch, every state file and every log entry; costs a listing, no reading."""
    logs = {
        folder: [(entry.name, entry.size, entry.modified_ms) for entry in checkpoint.entries(folder)]
        for folder in (OFFSETS, COMMITS)
    }
    trees = {
        folder: {place: sorted(names) for place, names in sorted(checkpoint.tree(folder).items())}
        for folder in (STATE, SOURCES)
    }
    seen = [(entry.name, entry.size) for entry in sink.entries(SINK_LOG)] if sink else []
    text = json.dumps([logs, trees, seen], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
