"""Builds one image from its locks and a checkout."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from deploy.distributions import build_distribution
from deploy.image import layer, oci, sbom
from deploy.image.compile import compile_modules
from deploy.image.errors import ImageError
from deploy.image.fetch import fetch_packages, fetch_wheels
from deploy.image.lock import packages_file, read_packages
from deploy.image.rootfs import SITE_PACKAGES, make_root
from deploy.image.variant import DEFAULT, Architecture, Variant, native_architecture
from deploy.installer import record_installer

_LICENCES = "usr/share/doc/knft"


class Archive(Struct, frozen=True):
    """An image that was written: its archive, and the digest of its manifest."""

    path: Path
    digest: str
    bytes: int


def build(
    checkout: Path, variant: Variant, architecture: Architecture, seconds: int, output: Path, *, revision: str = ""
) -> Archive:
    """Write the archive and the SBOM into ``output``; files in the image get the time ``seconds`` since 1970.

    ``revision`` is the commit of the checkout, empty if it is unknown. Raises ImageError if the build is not possible.
    """
    with tempfile.TemporaryDirectory(prefix="knft-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        wheel = build_distribution("wheel", checkout, folder, seconds)
        version = wheel.name.split("-")[1]
        root = folder / "root"
        files = _make_root(root, variant, architecture, [wheel])
        record_installer(root / SITE_PACKAGES, "image")
        _compile(root, variant, architecture, folder)
        created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        components = (
            *sbom.packages(variant, files),
            *sbom.distributions(root, [*fetch_wheels(variant, architecture).glob("*.whl"), wheel]),
        )
        document = sbom.document(architecture, version, created, components)
        _add_documents(root, checkout, document)
        packed = layer.pack(root, seconds)
    tag = version if variant.name == DEFAULT else f"{version}-{variant.name}"
    labels = _labels(version, created, revision)
    config = oci.ImageConfig(architecture.name, created, labels, f"knft.dev/knft:{tag}")
    compressed = layer.compress(packed)
    content = oci.archive(config, packed, compressed, seconds)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"knft-{tag}-{architecture.name}.oci.tar"
    path.write_bytes(content)
    path.with_suffix("").with_suffix(".spdx.json").write_text(document)
    return Archive(path, oci.image_blobs(config, packed, compressed)[0].digest, len(content))


def _make_root(root: Path, variant: Variant, architecture: Architecture, own_wheels: list[Path]) -> list[Path]:
    """Fill the root directory and return the files of its Debian packages."""
    files = fetch_packages(read_packages(packages_file(variant, architecture)))
    wheels = sorted(fetch_wheels(variant, architecture).glob("*.whl"))
    root.mkdir()
    make_root(root, variant, architecture, files, [*wheels, *own_wheels])
    return files


def _compile(root: Path, variant: Variant, architecture: Architecture, folder: Path) -> None:
    native = native_architecture()
    interpreter_root = root
    if architecture != native:
        interpreter_root = folder / "interpreter"
        _make_root(interpreter_root, variant, native, [])
    compile_modules(root, variant, interpreter_root, native)


def _add_documents(root: Path, checkout: Path, document: str) -> None:
    """Add knft's licences and the SBOM."""
    path = root / sbom.PATH
    path.parent.mkdir(parents=True)
    path.write_text(document)
    licences = root / _LICENCES
    licences.mkdir(parents=True)
    texts = sorted((checkout / "LICENSES").glob("*.txt"))
    if not texts:
        msg = f"{checkout / 'LICENSES'} has no licence"
        raise ImageError(msg)
    for text in texts:
        (licences / text.name).write_bytes(text.read_bytes())


def _labels(version: str, created: str, revision: str) -> dict[str, str]:
    return {
        f"org.opencontainers.image.{name}": value
        for name, value in {
            "title": "knft",
            "description": "A Kubernetes Service proxy that keeps Services and endpoints in nftables maps",
            "version": version,
            "created": created,
            "url": "https://knft.dev",
            "source": "https://github.com/knft-dev/knft",
            **({"revision": revision} if revision else {}),
            "licenses": "Apache-2.0 AND (Apache-2.0 OR GPL-2.0-only)",
        }.items()
    }
