"""The cache of jars: fetched once, verified on every use.

The folder of a configuration is named after a hash of ``ivy.xml`` with the versions that match PySpark. It is written
under a temporary name and then renamed, and has a manifest of checksums. A folder that does not match its manifest is
fetched again.
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
from headwater.jars.versions import ivy_variables, require_table_format

CONFIGURATIONS = ("spark", "broker", "s3", "postgres", "delta", "iceberg")
IVY_FILE = Path(__file__).with_name("ivy.xml")
MANIFEST = "manifest.json"


def jar_paths(
    configuration: str, *, ivy_file: Path = IVY_FILE, on_fetch: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Return the jars of a configuration of ``ivy.xml``, sorted by name. They are fetched on first use.

    ``on_fetch`` receives a message for the user if jars have to be fetched. Raise ``SetupProblem`` if that fails.
    """
    if ivy_file == IVY_FILE and configuration not in CONFIGURATIONS:
        raise ValueError(f"ivy.xml has no configuration {configuration!r}, only {', '.join(CONFIGURATIONS)}")
    require_table_format(configuration)
    folder = _folder(configuration, ivy_file)
    cache = folder.parent
    jars = _verified(folder)
    if jars is not None:
        return jars
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f"{folder.name}.lock"):
            jars = _verified(folder)
            if jars is None:
                on_fetch(f"fetching the jars for {configuration} (once, into {cache})")
                jars = _fetch(ivy_file, configuration, folder)
            return jars
    except OSError as error:
        raise SetupProblem(
            "cache-unwritable",
            "cannot write to the cache of jars",
            evidence={"folder": cache, "reason": error.strerror or error},
            remedy="set HEADWATER_CACHE to a writable folder",
        ) from error


def is_cached(configuration: str) -> bool:
    """Return whether the jars of a configuration have been fetched."""
    return (_folder(configuration, IVY_FILE) / MANIFEST).exists()


def cache_folder() -> Path:
    """Return HEADWATER_CACHE or else the user's cache folder."""
    chosen = os.environ.get("HEADWATER_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def _folder(configuration: str, ivy_file: Path) -> Path:
    return cache_folder() / "jars" / f"{configuration}-{_key(ivy_file, configuration)}"


def _key(ivy_file: Path, configuration: str) -> str:
    text = ivy_file.read_text(encoding="utf-8")
    for name, value in ivy_variables().items():
        text = text.replace(f"${{{name}}}", value)
    return hashlib.sha256(f"{configuration}\0{text}".encode()).hexdigest()[:16]


def _verified(folder: Path) -> list[Path] | None:
    """Return the folder's jars if they match its manifest, else None."""
    try:
        expected = json.loads((folder / MANIFEST).read_bytes())["sha256"]
        jars = sorted(folder.glob("*.jar"))
        if jars and expected == {jar.name: _sha256(jar) for jar in jars}:
            return jars
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _fetch(ivy_file: Path, configuration: str, folder: Path) -> list[Path]:
    for abandoned in folder.parent.glob(f".{folder.name}.*"):
        shutil.rmtree(abandoned, ignore_errors=True)
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
