"""Jars on this machine: fetched once, verified on every use.

A configuration's folder is named by the content of ``ivy.xml``, is written under another name and then renamed, and
holds a manifest of checksums. Whatever does not agree with its manifest is fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.core.errors import SetupProblem
from headwater.jars.ivy import resolve

CONFIGURATIONS = ("spark", "broker", "s3")
IVY_FILE = Path(__file__).with_name("ivy.xml")
MANIFEST = "manifest.json"


def jar_paths(
    configuration: str, *, ivy_file: Path = IVY_FILE, on_fetch: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """The jars of a configuration of ``ivy.xml``, in order of their names, fetched on first use.

    ``on_fetch`` is told, in a sentence for the user, when there is something to wait for.
    ``SetupProblem`` when jars have to be fetched and cannot be.
    """
    if ivy_file == IVY_FILE and configuration not in CONFIGURATIONS:
        raise ValueError(f"ivy.xml has no configuration {configuration!r}, only {', '.join(CONFIGURATIONS)}")
    folder = _folder(configuration, ivy_file)
    home = folder.parent
    jars = _verified(folder)
    if jars is not None:
        return jars
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _lock(home / f"{folder.name}.lock"):
            jars = _verified(folder)
            if jars is None:
                on_fetch(f"fetching the jars for {configuration} (once, into {home})")
                jars = _fetch(ivy_file, configuration, folder)
            return jars
    except OSError as failure:
        raise SetupProblem(
            "cache-unwritable",
            "cannot write the folder in which jars are kept",
            evidence={"folder": home, "reason": failure.strerror or failure},
            remedy="set HEADWATER_CACHE to a folder that can be written",
        ) from failure


def are_here(configuration: str) -> bool:
    """Whether the jars of a configuration were fetched already."""
    return (_folder(configuration, IVY_FILE) / MANIFEST).exists()


def cache_folder() -> Path:
    """HEADWATER_CACHE, else the user's cache folder."""
    named = os.environ.get("HEADWATER_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def _folder(configuration: str, ivy_file: Path) -> Path:
    return cache_folder() / "jars" / f"{configuration}-{_key(ivy_file, configuration)}"


def _key(ivy_file: Path, configuration: str) -> str:
    return hashlib.sha256(configuration.encode() + b"\0" + ivy_file.read_bytes()).hexdigest()[:16]


def _verified(folder: Path) -> list[Path] | None:
    """The folder's jars if they are exactly those of its manifest, else None."""
    try:
        expected = json.loads((folder / MANIFEST).read_bytes())["sha256"]
        jars = sorted(folder.glob("*.jar"))
        if jars and expected == {jar.name: _sha256(jar) for jar in jars}:
            return jars
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _fetch(ivy_file: Path, configuration: str, folder: Path) -> list[Path]:
    for left_behind in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        resolve(ivy_file, configuration, fresh, scratch=Path(scratch) / "ivy")
        sums = {jar.name: _sha256(jar) for jar in sorted(fresh.glob("*.jar"))}
        (fresh / MANIFEST).write_text(json.dumps({"configuration": configuration, "sha256": sums}, indent=1) + "\n")
        if folder.exists():
            folder.rename(Path(scratch) / "damaged")
        fresh.rename(folder)
    return sorted(folder.glob("*.jar"))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
