"""The images of a cluster as OCI archives in the cache: knft's, and some with one static program each."""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from deploy.cluster.packages import Unpacked
from deploy.cluster.processes import CHECKOUT
from deploy.image import layer, oci
from deploy.image.build import build
from deploy.image.errors import ImageError
from deploy.image.fetch import fetch_packages
from deploy.image.inputs import inputs_digest
from deploy.image.lock import packages_file, read_packages
from deploy.image.rootfs import unpack_packages
from deploy.image.variant import DEFAULT, VARIANTS, native_architecture
from deploy.programs import cache
from deploy.programs.build import Programs
from deploy.programs.errors import SetupError

PAUSE = "knft.dev/pause:1"
COREDNS = "knft.dev/coredns:1"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
KNFT = "knft.dev/knft"
KUBE_PROXY = "registry.k8s.io/kube-proxy"
_UNUSED_SECONDS = 7 * 24 * 3600
_SECONDS = 0
"""The time of all files in the images with static programs, since 1970."""
_SHELL = ("sh", "cat", "grep", "head", "hostname", "ip", "ls", "nc", "ping", "ps", "sleep", "tail", "vi")
"""The commands of busybox in agnhost's image. Its wget crashes at names, because it is statically linked."""


class StaticImage(Struct, frozen=True):
    """An image with static programs: the files by their paths, and the links by theirs."""

    name: str
    entrypoint: tuple[str, ...]
    files: Mapping[str, Path]
    links: Mapping[str, str] = {}
    packages: tuple[Path, ...] = ()
    """Files of Debian packages to unpack."""

    @property
    def stem(self) -> str:
        """The beginning of the archive's name."""
        return self.name.rpartition("/")[2].partition(":")[0]

    def digest(self) -> str:
        """Return a digest of everything that the archive depends on."""
        names = [path.name for path in self.packages]
        parts = [repr((self.name, self.entrypoint, sorted(self.files), sorted(self.links.items()), names))]
        for path in self.files.values():
            with path.open("rb") as file:
                parts.append(hashlib.file_digest(file, "sha256").hexdigest())
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


class Images(Struct, frozen=True):
    """The archives, and the tag of knft's image."""

    archives: tuple[Path, ...]
    knft_tag: str


def make_images(programs: Programs, packages: Unpacked, *, with_kube_proxy: bool = False) -> Images:
    """Return the archives; write those that are missing or out of date. Raise SetupError if that fails."""
    folder = cache.cache_folder() / "images"
    folder.mkdir(exist_ok=True)
    with cache.locked(folder):
        try:
            knft = _knft(folder)
            images = [*_images(programs, packages), *([_kube_proxy(programs)] if with_kube_proxy else [])]
            others = [static_archive(folder, image) for image in images]
        except ImageError as error:
            raise SetupError(str(error)) from error
        _delete_unused(folder)
        folder.touch()
    return Images((*others, knft), knft.name.split("-")[1])


def _images(programs: Programs, packages: Unpacked) -> Iterator[StaticImage]:
    yield StaticImage(PAUSE, ("/pause",), {"pause": Path(programs.path("pause"))})
    yield StaticImage(COREDNS, ("/coredns",), {"coredns": Path(programs.path("coredns"))})
    agnhost = {"agnhost": Path(programs.path("agnhost")), "usr/bin/busybox": packages.busybox}
    links = {"bin": "usr/bin", **{f"usr/bin/{name}": "busybox" for name in _SHELL}}
    yield StaticImage(AGNHOST, ("/agnhost",), agnhost, links)


def _kube_proxy(programs: Programs) -> StaticImage:
    """Return kube-proxy's image, with the Debian packages of knft's: it runs nft and iptables."""
    packages = fetch_packages(read_packages(packages_file(VARIANTS[DEFAULT], native_architecture())))
    files = {"usr/local/bin/kube-proxy": Path(programs.path("kube-proxy"))}
    return StaticImage(f"{KUBE_PROXY}:{programs.release}", (), files, packages=tuple(packages))


def static_archive(folder: Path, image: StaticImage) -> Path:
    """Return the archive of an image; write it if it is missing. Raise ImageError if that fails."""
    archive = folder / f"{image.stem}-{image.digest()[:12]}.oci.tar"
    if not archive.exists():
        print(f"cluster: writing the image {image.name}", flush=True)
        created = datetime.fromtimestamp(_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        config = oci.ImageConfig(
            native_architecture().name, created, {}, image.name, image.entrypoint, "python -m deploy.cluster"
        )
        with tempfile.TemporaryDirectory(prefix="knft-image-") as name:
            _fill(Path(name), image)
            packed = layer.pack(Path(name), _SECONDS)
        partial = archive.with_suffix(".partial")
        partial.write_bytes(oci.archive(config, packed, layer.compress(packed), _SECONDS))
        partial.rename(archive)
    archive.touch()
    return archive


def _fill(root: Path, image: StaticImage) -> None:
    if image.packages:
        unpack_packages(root, image.packages)
    # Programs expect a directory for temporary files.
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name, source in image.files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / name)
        (root / name).chmod(0o755)
    for name, target in image.links.items():
        (root / name).symlink_to(target)


def _knft(folder: Path) -> Path:
    """Return the archive of knft's image, built from this checkout if its inputs have changed."""
    digest = inputs_digest(CHECKOUT)[:12]
    found = next(folder.glob(f"knft-*-{digest}.oci.tar"), None)
    if found is None:
        print("cluster: building knft's image", flush=True)
        with tempfile.TemporaryDirectory(prefix="knft-image-", dir=folder) as name:
            built = build(CHECKOUT, VARIANTS[DEFAULT], native_architecture(), int(time.time()), Path(name))
            version = built.path.name.split("-")[1]
            found = built.path.rename(folder / f"knft-{version}-{digest}.oci.tar")
    found.touch()
    return found


def _delete_unused(folder: Path) -> None:
    for path in folder.glob("*.oci.tar"):
        if path.stat().st_mtime < time.time() - _UNUSED_SECONDS:
            path.unlink()
