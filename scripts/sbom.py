"""List what an installation of Headwater consists of: packages and jars, with versions, checksums and licenses.

    python scripts/sbom.py                 writes sbom.cdx.json (CycloneDX) and docs/reference/licenses.md

Packages are those of this environment that ``headwater[all]`` requires. Jars are resolved by Ivy, whose cache has the
licenses that their publishers declare. Exits with status 1 if a license is not known to be compatible with Apache-2.0.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headwater.jars.ivy import resolve
from headwater.jars.resolve import CONFIGURATIONS, IVY_FILE
from headwater.jars.versions import has_release

ROOT = Path(__file__).parents[1]
BOM_FILE = ROOT / "sbom.cdx.json"
PAGE = ROOT / "docs" / "reference" / "licenses.md"
# What publishers write instead of an SPDX identifier.
SPDX = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "bouncy castle licence": "MIT",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "go license": "BSD-3-Clause",
    "isc license": "ISC",
    "mit": "MIT",
    "mit license": "MIT",
    "mit-0": "MIT-0",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "public domain, per creative commons cc0": "CC0-1.0",
    "the apache license, version 2.0": "Apache-2.0",
    "the apache software license, version 2.0": "Apache-2.0",
    "the mit license": "MIT",
}
# Under terms that allow an Apache-2.0 program to depend on them. None of them is part of Headwater's own wheel.
COMPATIBLE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"),
    *("Zlib", "LGPL-3.0-only"),
}


@dataclass(frozen=True, order=True)
class Part:
    """A package or a jar. ``group`` is empty for a package, and the publisher's group for a jar."""

    group: str
    name: str
    version: str
    license: str
    sha256: str = ""

    @property
    def url(self) -> PackageURL:
        return PackageURL("maven" if self.group else "pypi", self.group or None, self.name, self.version)


def packages() -> list[Part]:
    """Return the packages that ``headwater[all]`` requires in this environment, directly or not."""
    found: dict[str, Distribution] = {}
    pending = [Requirement("headwater[all]")]
    done: set[str] = set()
    while pending:
        requirement = pending.pop()
        if str(requirement) in done:
            continue
        done.add(str(requirement))
        distribution = importlib.metadata.distribution(requirement.name)
        found[canonicalize_name(requirement.name)] = distribution
        for text in distribution.requires or ():
            needed = Requirement(text)
            extras = {"", *requirement.extras}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                pending.append(needed)
    del found["headwater"]
    return sorted(Part("", name, one.version, package_license(one)) for name, one in found.items())


def package_license(distribution: Distribution) -> str:
    """Return a package's license as SPDX where its metadata names one that is known, else as the metadata has it."""
    metadata = distribution.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    declared = (metadata.get("License") or "").strip()
    if declared and "\n" not in declared and spdx(declared) != "Dual License":
        return spdx(declared)
    classified = [text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if "License" in text]
    return " OR ".join(sorted({spdx(name) for name in classified})) or "unknown"


def spdx(name: str) -> str:
    return SPDX.get(name.strip().lower(), name.strip())


def jars(scratch: Path) -> list[Part]:
    """Return the jars of all configurations that this environment's PySpark can have."""
    found = set()
    for configuration in CONFIGURATIONS:
        if not has_release(configuration):
            continue
        into = scratch / configuration
        into.mkdir()
        cache = scratch / f"{configuration}-cache"
        resolve(IVY_FILE, configuration, into, scratch=cache)
        described = {(module.get("module"), module.get("revision")): module for module in _modules(cache)}
        for jar in into.glob("*.jar"):
            key = next((one for one in described if jar.name.startswith(f"{one[0]}-{one[1]}")), None)
            if key is None:
                raise SystemExit(f"error: Ivy has no description of {jar.name}")
            group = str(described[key].get("organisation"))
            names = [spdx(license_.get("name", "")) for license_ in described[key].iter("license")]
            sha256 = hashlib.sha256(jar.read_bytes()).hexdigest()
            found.add(Part(group, str(key[0]), str(key[1]), " OR ".join(sorted(set(names))) or "unknown", sha256))
    return sorted(found)


def _modules(cache: Path) -> Iterable[ET.Element]:
    for file in cache.rglob("ivy-*.xml"):
        info = ET.parse(file).getroot().find("info")  # noqa: S314  Ivy wrote it
        if info is not None:
            yield info


def bill_of_materials(parts: Iterable[Part]) -> str:
    """Return the parts as a CycloneDX document."""
    bom = Bom()
    bom.metadata.component = headwater = Component(name="headwater", type=ComponentType.APPLICATION)
    for part in parts:
        bom.components.add(
            Component(
                name=part.name,
                group=part.group or None,
                version=part.version,
                type=ComponentType.LIBRARY,
                purl=part.url,
                bom_ref=part.url.to_string(),
                licenses=[_license(part.license)],
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
            )
        )
    bom.register_dependency(headwater, bom.components)
    return str(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)) + "\n"


def _license(text: str) -> License:
    if text in COMPATIBLE:
        return DisjunctiveLicense(id=text)
    known = all(word in COMPATIBLE for word in re.findall(r"[^\s()]+", text) if word not in ("AND", "OR"))
    return LicenseExpression(text) if known else DisjunctiveLicense(name=text)


def is_compatible(license_: str) -> bool:
    """Return whether each of the licenses that apply, or one of those to choose from, is compatible with Apache-2.0."""
    text = license_.replace("(", "").replace(")", "")
    return all(any(choice.strip() in COMPATIBLE for choice in part.split(" OR ")) for part in re.split(r" AND ", text))


def page(of_packages: list[Part], of_jars: list[Part]) -> str:
    """Return the page of licenses."""
    return "\n".join(
        [
            "# Licenses of dependencies",
            "",
            "Headwater is licensed under Apache-2.0. Its wheel contains no code of other projects. An",
            "installation consists of the packages and jars below, which pip and Headwater fetch from their",
            "publishers.",
            "",
            "`make sbom` writes this page and a software bill of materials in CycloneDX format,",
            "`sbom.cdx.json`, with the checksums of the jars. It fails if a license is not known to be",
            "compatible with Apache-2.0.",
            "",
            "- **psycopg** (LGPL-3.0), for PostgreSQL sinks, is optional and is used as a separate library.",
            "- **docutils**, which NiceGUI requires, is in the public domain, except for some files under",
            "  BSD and a tool under GPL that Headwater does not use.",
            "- Packages under **MPL-2.0** are used unchanged.",
            *(
                ["- The jars of Iceberg, which has no release for this PySpark, are not listed."]
                if not has_release("iceberg")
                else []
            ),
            "",
            "## Packages",
            "",
            "The packages of `pip install 'headwater[all]'`. Their checksums are in `requirements.lock`.",
            "",
            *_table(of_packages),
            "",
            "## Jars",
            "",
            "The jars for Kafka, the local broker, S3, PostgreSQL and Delta, on the PySpark of the tests.",
            "PySpark's own jars are part of its package.",
            "",
            *_table(of_jars),
            "",
        ]
    )


def _table(parts: list[Part]) -> list[str]:
    rows = [
        f"| {part.group}:{part.name} | {part.version} | {part.license} |"
        if part.group
        else f"| {part.name} | {part.version} | {part.license} |"
        for part in parts
    ]
    return ["| name | version | license |", "|---|---|---|", *rows]


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        of_packages, of_jars = packages(), jars(Path(scratch))
    parts = [*of_packages, *of_jars]
    BOM_FILE.write_text(bill_of_materials(parts), "utf-8")
    PAGE.write_text(page(of_packages, of_jars), "utf-8")
    unknown = [part for part in parts if not is_compatible(part.license)]
    for part in unknown:
        sys.stderr.write(f"error: {part.url}: license {part.license!r} is not known to be compatible with Apache-2.0\n")
    sys.stdout.write(
        f"{len(of_packages)} packages and {len(of_jars)} jars: {BOM_FILE.name}, {PAGE.relative_to(ROOT)}\n"
    )
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
