"""Mutations of a checkpoint: flipped bits, truncations, deletions, renamed and swapped files. Reproducible by seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Contents = dict[str, bytes]


def flip_bits(contents: Contents, chance: random.Random) -> str:
    path = _some_file(contents, chance)
    data = bytearray(contents[path])
    for _ in range(chance.choice([1, 1, 1, 3, 20]) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    contents[path] = bytes(data)
    return f"flip bits in {path}"


def truncate(contents: Contents, chance: random.Random) -> str:
    path = _some_file(contents, chance)
    keep = chance.choice([0, 1, 2, 3, chance.randrange(len(contents[path]) + 1)])
    contents[path] = contents[path][:keep]
    return f"truncate {path} to {keep} bytes"


def fill_with_zeros(contents: Contents, chance: random.Random) -> str:
    path = _some_file(contents, chance)
    start = chance.randrange(len(contents[path]) + 1)
    contents[path] = contents[path][:start] + b"\0" * (len(contents[path]) - start)
    return f"fill {path} with zeros from {start}"


def replace_number(contents: Contents, chance: random.Random) -> str:
    """Replace a number in JSON by a value that readers may not expect."""
    path = _some_file(contents, chance)
    numbers = list(re.finditer(rb"\d+", contents[path]))
    if not numbers:
        return f"no number in {path}"
    spot = chance.choice(numbers)
    new = chance.choice([b"-1", b"0", b"99999999999999999999", b"1e9", b"null", b'"x"', b"[]", b"{}", b"true", b"1.5"])
    contents[path] = contents[path][: spot.start()] + new + contents[path][spot.end() :]
    return f"write {new!r} into {path} at {spot.start()}"


def insert_line(contents: Contents, chance: random.Random) -> str:
    path = _some_file(contents, chance)
    lines = contents[path].split(b"\n")
    lines.insert(chance.randrange(len(lines) + 1), chance.choice([b"", b"-", b"{}", b"v2", b"\xff", b"[" * 5000]))
    contents[path] = b"\n".join(lines)
    return f"insert a line into {path}"


def delete(contents: Contents, chance: random.Random) -> str:
    path = _some_file(contents, chance)
    del contents[path]
    return f"delete {path}"


def delete_folder(contents: Contents, chance: random.Random) -> str:
    folder = chance.choice(sorted({path.rpartition("/")[0] for path in contents}))
    for path in [path for path in contents if path.startswith(f"{folder}/") or not folder]:
        if len(contents) > 1:
            del contents[path]
    return f"delete folder {folder}"


def rename(contents: Contents, chance: random.Random) -> str:
    path = _some_file(contents, chance)
    folder, _, name = path.rpartition("/")
    odd_names = [
        "-1",
        "007",
        "99999999999999999999",
        "5.compact",
        "x.zip",
        "3_.zip",
        "0_id.changelog",
        ".tmp",
        "é",
        "1.delta",
    ]
    moved = chance.choice([re.sub(r"\d+", str(chance.randrange(30)), name, count=1), f"{name}~", *odd_names])
    target = f"{folder}/{moved}" if folder else moved
    contents[target] = contents.pop(path)
    return f"rename {path} to {target}"


def move_elsewhere(contents: Contents, chance: random.Random) -> str:
    path, other = _some_file(contents, chance), _some_file(contents, chance)
    folder = chance.choice(
        [other.rpartition("/")[0], other, f"state/{chance.choice(['x', '-1', '9999999999', '7'])}/0"]
    )
    target = f"{folder}/{path.rpartition('/')[2]}".lstrip("/")
    contents[target] = contents.pop(path)
    return f"move {path} to {target}"


def swap(contents: Contents, chance: random.Random) -> str:
    one, other = _some_file(contents, chance), _some_file(contents, chance)
    contents[one], contents[other] = contents[other], contents[one]
    return f"swap {one} and {other}"


def copy_over(contents: Contents, chance: random.Random) -> str:
    one, other = _some_file(contents, chance), _some_file(contents, chance)
    contents[one] = contents[other]
    return f"copy {other} over {one}"


MUTATIONS: tuple[Callable[[Contents, random.Random], str], ...] = (
    flip_bits,
    flip_bits,
    truncate,
    fill_with_zeros,
    replace_number,
    replace_number,
    insert_line,
    delete,
    delete_folder,
    rename,
    move_elsewhere,
    swap,
    copy_over,
)


def mutated(contents: Contents, chance: random.Random) -> tuple[Contents, list[str]]:
    """Return a copy with one to four mutations, and their descriptions."""
    changed = dict(contents)
    descriptions = []
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        if changed:
            descriptions.append(chance.choice(MUTATIONS)(changed, chance))
    return changed, descriptions


def _some_file(contents: Contents, chance: random.Random) -> str:
    """Return a random file: a text log about as often as one of the far more numerous state files."""
    paths = sorted(contents)
    logs = [path for path in paths if not path.startswith("state/") and not path.rpartition("/")[2].startswith(".")]
    return chance.choice(logs if logs and chance.random() < 0.6 else paths)
