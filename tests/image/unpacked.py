"""Unpacks an image."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from deploy.image.build import Archive


class Image(Struct, frozen=True):
    """An unpacked image: the JSON objects of its archive, and the directory with its files."""

    archive: Archive
    index: dict[str, Any]
    manifest: dict[str, Any]
    config: dict[str, Any]
    root: Path


def unpack(archive: Archive, folder: Path) -> Image:
    """Unpack an archive into ``folder``, and check all digests."""
    with tarfile.open(archive.path) as packed:
        contents = {member.name: _read(packed, member) for member in packed}

    def blob(descriptor: dict[str, Any]) -> bytes:
        digest = descriptor["digest"].removeprefix("sha256:")
        content = contents[f"blobs/sha256/{digest}"]
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (digest, descriptor["size"])
        return content

    index = json.loads(contents["index.json"])
    manifest = json.loads(blob(index["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    layer = folder / "layer.tar.gz"
    layer.write_bytes(blob(manifest["layers"][0]))
    root = folder / "root"
    root.mkdir()
    with tarfile.open(layer) as packed:
        packed.extractall(root)  # noqa: S202 - built by this test
    return Image(archive, index, manifest, config, root)


def _read(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = packed.extractfile(member)
    assert content is not None
    return content.read()
