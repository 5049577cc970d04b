"""Writes the SBOM of an image: an SPDX 2.3 document with its Debian packages and its Python distributions."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from deploy.image.commands import run
from deploy.image.rootfs import SITE_PACKAGES
from deploy.image.variant import Architecture, Variant

PATH = "usr/share/sbom/knft.spdx.json"
"""Where the document is in the image."""
_UNKNOWN = "NOASSERTION"


class Component(Struct, frozen=True, order=True):
    """A package or distribution in the image. ``url`` is its package URL; ``license`` is an SPDX expression."""

    name: str
    version: str
    url: str
    license: str = _UNKNOWN
    sha256: str = ""


def packages(variant: Variant, files: Iterable[Path]) -> Iterator[Component]:
    """Yield the Debian packages. Their licences are in usr/share/doc, in Debian's own format."""
    for file in files:
        shown = run(["dpkg-deb", "--show", "--showformat", "${Package} ${Version} ${Architecture}", str(file)])
        name, version, architecture = shown.split()
        query = f"arch={architecture}&distro={variant.suite}"
        url = f"pkg:deb/debian/{name}@{quote(version, safe='')}?{query}"
        yield Component(name, version, url, sha256=hashlib.sha256(file.read_bytes()).hexdigest())


def distributions(root: Path, wheels: Iterable[Path]) -> Iterator[Component]:
    """Yield the Python distributions that are installed in a root directory from ``wheels``."""
    digests = {_stem(wheel): hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels}
    for path in (root / SITE_PACKAGES).glob("*.dist-info/METADATA"):
        fields = HeaderParser().parsestr(path.read_text())
        name, version = str(fields["Name"]), str(fields["Version"])
        license_expression = str(fields.get("License-Expression") or _UNKNOWN)
        url = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
        digest = digests.get(path.parent.name.removesuffix(".dist-info").lower(), "")
        yield Component(name, version, url, license_expression, digest)


def _stem(wheel: Path) -> str:
    """Return the name and version of a wheel, in the form of the directory with its metadata."""
    return "-".join(wheel.name.split("-")[:2]).lower()


def document(architecture: Architecture, version: str, created: str, components: Iterable[Component]) -> str:
    """Return the document; ``created`` is a time of RFC 3339."""
    parts = sorted(components)
    listed = [_package(number, part) for number, part in enumerate(parts)]
    content = json.dumps(listed, sort_keys=True).encode()
    value = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"knft-{version}-{architecture.name}",
        # Equal contents have an equal name, as the specification wants it.
        "documentNamespace": f"https://knft.dev/spdx/{version}-{hashlib.sha256(content).hexdigest()[:32]}",
        "creationInfo": {"created": created, "creators": ["Tool: python -m deploy.image"]},
        "packages": listed,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": each["SPDXID"],
            }
            for each in listed
        ],
    }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _package(number: int, component: Component) -> dict[str, Any]:
    package: dict[str, Any] = {
        "SPDXID": f"SPDXRef-Package-{number}",
        "name": component.name,
        "versionInfo": component.version,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": component.license,
        "copyrightText": _UNKNOWN,
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": component.url}
        ],
    }
    if component.sha256:
        package["checksums"] = [{"algorithm": "SHA256", "checksumValue": component.sha256}]
    return package
