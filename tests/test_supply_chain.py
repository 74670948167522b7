"""What is installed with Headwater, and the wheel that is published: pinned, licensed and reproducible."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from test_packaging import ROOT, build_wheel

sys.path.append(str(ROOT / "scripts"))
import sbom

PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def test_lock_file_pins_what_the_project_requires() -> None:
    """Each requirement of the project has a version in the lock file that it allows; `make lock` updates it."""
    versions: dict[str, set[str]] = {}
    for name, version in PINNED.findall((ROOT / "requirements.lock").read_text("utf-8")):
        versions.setdefault(canonicalize_name(name), set()).add(version)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = ["dev", *re.findall(r"[\w-]+", project["optional-dependencies"]["all"][0])[1:]]
    wanted = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    for requirement in map(Requirement, wanted):
        if requirement.name != "headwater":
            found = versions[canonicalize_name(requirement.name)]
            assert any(requirement.specifier.contains(version) for version in found), (str(requirement), found)


def test_every_pinned_package_has_checksums() -> None:
    """pip verifies each file that it installs from the lock file."""
    entries = re.split(r"\n(?=[\w.-]+==)", (ROOT / "requirements.lock").read_text("utf-8"))[1:]
    assert len(entries) > 100
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_licenses_are_compatible() -> None:
    """The page of licenses lists none that is unknown, and the check rejects one that is."""
    rows = [line.strip("|").split("|") for line in sbom.PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    listed = {name.strip(): license_.strip() for name, _, license_ in rows if name.strip() != "name"}
    assert {"pyarrow", "psycopg", "org.apache.kafka:kafka-clients", "io.delta:delta-storage"} <= listed.keys()
    assert [name for name, license_ in listed.items() if not sbom.is_compatible(license_)] == []
    assert sbom.is_compatible("MPL-2.0 AND (Apache-2.0 OR MIT)")
    assert not sbom.is_compatible("Apache-2.0 AND GPL-3.0-only")
    assert not sbom.is_compatible("unknown")


def test_licenses_are_read_from_the_metadata_of_packages() -> None:
    """An SPDX expression counts, then the license field, then the classifiers."""
    licenses = {part.name: part.license for part in sbom.packages()}
    assert licenses["pyarrow"] == "Apache-2.0"
    assert licenses["rocksdict"] == "MIT"
    assert {"numpy", "duckdb", "pyspark", "nicegui", "confluent-kafka", "psycopg"} <= licenses.keys()
    assert "pytest" not in licenses


def test_bill_of_materials_names_packages_and_jars() -> None:
    """Each part has its package URL, and jars have their checksum."""
    parts = [sbom.Part("", "numpy", "2.4.6", "BSD-3-Clause"), sbom.Part("io.delta", "x", "1", "Apache-2.0", "ab" * 32)]
    text = sbom.bill_of_materials(parts)
    assert "pkg:pypi/numpy@2.4.6" in text
    assert "pkg:maven/io.delta/x@1" in text
    assert "ab" * 32 in text


@pytest.mark.services  # builds two wheels
def test_the_wheel_is_reproducible(tmp_path: Path) -> None:
    """The same source gives the same bytes, in another folder, with files of other times and permissions."""
    copy = tmp_path / "elsewhere" / "headwater"
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    for file in copy.rglob("*.py"):
        os.utime(file, (1, 1_000_000_000))
        file.chmod(0o600)
    first, second = (build_wheel(tmp_path / name, root) for name, root in (("first", ROOT), ("second", copy)))
    assert first.name == second.name
    assert hashlib.sha256(first.read_bytes()).hexdigest() == hashlib.sha256(second.read_bytes()).hexdigest()
