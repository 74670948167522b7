"""Which Delta tables Headwater writes to without Spark: an allow-list of table features."""

from __future__ import annotations

from headwater.core.errors import ChangeRefused
from headwater.lakehouse.delta_log import Snapshot

# A rewind names files that Delta wrote and never writes rows, so features about the contents of files do not matter.
KNOWN_FEATURES = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
    }
)
CATALOG_FEATURES = frozenset({"catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits-preview"})
FEATURE_READER, FEATURE_WRITER = 3, 7
IDENTITY = "delta.identity."


def refuse_features(table: Snapshot, uri: str, *, engine: str = "native") -> None:
    """Raise ``ChangeRefused`` if a commit to the table could break a rule that Headwater does not know."""
    features = {name for kind in ("readerFeatures", "writerFeatures") for name in table.protocol.get(kind) or ()}
    managed = sorted(features & CATALOG_FEATURES)
    if managed:
        raise ChangeRefused(
            "catalog-managed",
            "commits to this table go through a catalog, so a rewind cannot write one",
            evidence={"table": uri, "table feature": ", ".join(managed)},
            remedy="fork the stream into a table of its own: headwater fork CKPT INTO --sink delta:PATH",
        )
    if table.is_set("delta.appendOnly"):
        raise ChangeRefused(
            "append-only-table",
            "the table is append-only: rows of undone batches cannot be removed",
            evidence={"table": uri, "property": "delta.appendOnly = true"},
            remedy=f"ALTER TABLE delta.`{uri.removeprefix('delta:')}` UNSET TBLPROPERTIES ('delta.appendOnly'), and try again",
        )
    if engine == "native":
        _refuse_unknown(table, uri, features)


def _refuse_unknown(table: Snapshot, uri: str, features: set[str]) -> None:
    unknown = sorted(features - KNOWN_FEATURES)
    reader, writer = table.protocol.get("minReaderVersion", 1), table.protocol.get("minWriterVersion", 2)
    if not unknown and (reader > FEATURE_READER or writer > FEATURE_WRITER):
        unknown = [f"protocol {reader}, {writer}"]
    if not unknown and IDENTITY in str(table.metadata.get("schemaString", "")):
        unknown = ["identityColumns"]
    if unknown:
        raise ChangeRefused(
            "table-feature",
            "the table uses a feature that Headwater cannot write without Spark",
            evidence={"table": uri, "table feature": ", ".join(unknown)},
            remedy="add --engine spark: Delta then writes the commit",
        )
