"""Writes an image as an OCI archive (image specification 1.1): a tar archive of blobs named by their digests."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

_MEDIA = "application/vnd.oci.image"


class ImageConfig(Struct, frozen=True):
    """What the image's manifest and configuration say; ``created`` is a time of RFC 3339."""

    architecture: str
    created: str
    labels: Mapping[str, str]
    name: str
    """The name that a container runtime gives the image when it imports the archive."""
    entrypoint: tuple[str, ...] = ("/usr/bin/knft",)
    created_by: str = "python -m deploy.image"
    arguments: tuple[str, ...] = ()
    """The arguments of the entrypoint, if a pod gives none."""


class Blob(Struct, frozen=True):
    """The content of a blob, and its type."""

    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        """The digest that names the blob."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    def descriptor(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Return the object that refers to the blob."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content), **fields}


def _json(media_type: str, value: dict[str, Any]) -> Blob:
    return Blob(media_type, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def image_blobs(config: ImageConfig, layer: bytes, compressed: bytes) -> tuple[Blob, Blob, Blob]:
    """Return the manifest, the configuration and the layer."""
    packed = Blob(f"{_MEDIA}.layer.v1.tar+gzip", compressed)
    configuration = _json(
        f"{_MEDIA}.config.v1+json",
        {
            "architecture": config.architecture,
            "os": "linux",
            "created": config.created,
            "config": {
                "Entrypoint": list(config.entrypoint),
                **({"Cmd": list(config.arguments)} if config.arguments else {}),
                "Env": ["PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8"],
                "Labels": dict(config.labels),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": config.created, "created_by": config.created_by}],
        },
    )
    manifest = _json(
        f"{_MEDIA}.manifest.v1+json",
        {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": configuration.descriptor(),
            "layers": [packed.descriptor()],
            "annotations": dict(config.labels),
        },
    )
    return manifest, configuration, packed


def archive(config: ImageConfig, layer: bytes, compressed: bytes, seconds: int) -> bytes:
    """Return the OCI archive; its files have the time ``seconds`` since 1970."""
    return archive_of_images((config,), layer, compressed, seconds)


def archive_of_images(configs: Sequence[ImageConfig], layer: bytes, compressed: bytes, seconds: int) -> bytes:
    """Return an OCI archive of several images with the same layer."""
    images = [(config, image_blobs(config, layer, compressed)) for config in configs]
    index = {
        "schemaVersion": 2,
        "mediaType": f"{_MEDIA}.index.v1+json",
        "manifests": [_index_entry(config, blobs[0]) for config, blobs in images],
    }
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps(index, sort_keys=True, separators=(",", ":")).encode(),
        **{
            f"blobs/sha256/{blob.digest.removeprefix('sha256:')}": blob.content for _, blobs in images for blob in blobs
        },
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), seconds, 0o644
            packed.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _index_entry(config: ImageConfig, manifest: Blob) -> dict[str, Any]:
    """Return the entry of an image in the index of an archive."""
    platform = {"architecture": config.architecture, "os": "linux"}
    names = {"org.opencontainers.image.ref.name": config.name, "io.containerd.image.name": config.name}
    return manifest.descriptor(platform=platform, annotations=names)
