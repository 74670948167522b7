"""The folders of a query's sources under ``sources/``.

The offset log has an offset for each use of a source, but a source that the query uses several times, as in a join with
itself, has one folder. Spark numbers the folders in the order in which the sources first occur.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headwater.checkpoint.log_entries import OffsetEntry, text_of_source


def source_folders(
    entries: Sequence[OffsetEntry], present: Collection[str], recorded: Sequence[str] = ()
) -> dict[str, str]:
    """Return the name of the folder of each source in the newest of some offsets, by its name there.

    ``present`` are the folders that exist. ``recorded`` are the job's own names of its sources in the order of their
    offsets, if they are known. Otherwise uses of one source are recognized by offsets that are the same in every batch.
    """
    names = [source.name for source in entries[-1].sources] if entries else []
    folders = sorted((name for name in present if name.isdecimal()), key=int)
    own = {name: name for name in names}
    if len(folders) >= len(names) or not all(name.isdecimal() for name in names):
        return own
    if folders != [str(number) for number in range(len(folders))]:
        return own  # a source without a log, such as a socket, precedes one with a log
    names.sort(key=int)
    if len(recorded) == len(names) and len(set(recorded)) == len(folders):
        return dict(zip(names, _by_first_use(recorded), strict=True))
    histories = [tuple(text_of_source(entry, name) for entry in entries) for name in names]
    distinct = len(set(histories))
    if distinct > len(folders):
        return own
    if distinct == len(folders):
        return dict(zip(names, _by_first_use(histories), strict=True))
    # Different sources with the same offsets: whichever folder is meant, its offset is the same.
    return {name: str(min(int(name), len(folders) - 1)) for name in names}


def _by_first_use(identities: Sequence[object]) -> list[str]:
    order = list(dict.fromkeys(identities))
    return [str(order.index(one)) for one in identities]
