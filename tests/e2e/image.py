"""The images of upstream's tests: one layer with Debian's commands and upstream's programs, under several names."""

import hashlib
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from msgspec import Struct

from deploy.image import layer, oci
from deploy.image.variant import native_architecture
from deploy.programs import cache
from deploy.programs.build import MODULE, Programs
from deploy.programs.errors import SetupError
from deploy.programs.modules import module_folder
from tests.e2e.packages import package_files

PROGRAMS = ("agnhost", "coredns", "regression-issue-74839")
"""Upstream's image agnhost has CoreDNS, too."""
_SECONDS = 0
"""The time of all files in the image, since 1970."""
_MERGED = ("bin", "lib", "lib64", "sbin")
"""Symbolic links into ``usr``; some packages still have files in these directories."""
_UNUSED = re.compile(r"usr/share/(bash-completion|doc|info|locale|man|mime|zoneinfo|menu|lintian)/|usr/lib/systemd/")
_DIRECTORIES = {"dev": 0o755, "etc": 0o755, "proc": 0o755, "root": 0o755, "sys": 0o755, "tmp": 0o1777, "uploads": 0o755}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n",
}
_LINKS = {
    "agnhost-2": "agnhost",
    # Debian's packages create these in scripts.
    "usr/bin/nc": "nc.openbsd",
    "usr/bin/awk": "mawk",
    "usr/bin/which": "which.debianutils",
    "usr/bin/sh": "dash",
}
_WGETRC = "etc/wgetrc"
_ONE_TRY = "\n# Upstream's tests expect busybox's wget, which tries once.\ntries = 1\n"
_CERTIFICATES = ("localhost.crt", "localhost.key")
"""The files of agnhost's porter, which upstream's image has."""


class _Name(Struct, frozen=True):
    """An image: the end of its name in upstream's list, and what it runs."""

    pattern: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...] = ()


_NAMES = (
    _Name(r"/agnhost:", ("/agnhost",), ("pause",)),
    # The tests of EndpointSlices need a pod that runs, and KubeProxy's those of sleep, cat and grep.
    _Name(r"/nginx:", ("/agnhost",), ("pause",)),
    _Name(r"/distroless-iptables:", (), ("sh",)),
    _Name(r"/busybox:", (), ("sh",)),
    _Name(r"/glibc-dns-testing:", (), ("sh",)),
    _Name(r"/pause:", ("/agnhost", "pause")),
    _Name(r"/regression-issue-74839:", ("/regression-issue-74839",)),
)


def write_image(programs: Programs, folder: Path) -> Path:
    """Return the OCI archive of all images; write it if it is missing. Raise SetupError if that fails."""
    listed = _list_images(programs)
    contents = {name: Path(programs.path(name)) for name in PROGRAMS} | _certificates(programs.release)
    packages = package_files()
    archive = folder / f"e2e-{_digest(listed, contents, packages)[:12]}.oci.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with cache.locked(folder):
        if not archive.exists():
            print("e2e: writing the image of the tests", flush=True)
            for old in folder.glob("*.oci.tar"):
                old.unlink()
            with tempfile.TemporaryDirectory(prefix="knft-e2e-") as name:
                _fill(Path(name), contents, packages)
                packed = layer.pack(Path(name), _SECONDS)
            partial = archive.with_suffix(".partial")
            content = oci.archive_of_images(list(image_configs(listed)), packed, layer.compress(packed), _SECONDS)
            partial.write_bytes(content)
            partial.rename(archive)
    return archive


def _list_images(programs: Programs) -> list[str]:
    """Return the names of all images of the tests."""
    command = [programs.path("e2e.test"), "--list-images"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"'e2e.test --list-images' failed: {done.stderr.strip()[-2000:]}"
        raise SetupError(msg)
    # They come in random order.
    return sorted(done.stdout.split())


def image_configs(listed: Sequence[str]) -> Iterator[oci.ImageConfig]:
    """Yield the images that the cluster gets, of those that ``e2e.test --list-images`` prints."""
    created = datetime.fromtimestamp(_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in listed:
        for each in _NAMES:
            if re.search(each.pattern, name):
                yield oci.ImageConfig(
                    native_architecture().name,
                    created,
                    {},
                    name,
                    each.entrypoint,
                    "python -m tests.e2e",
                    each.arguments,
                )


def _certificates(release: str) -> dict[str, Path]:
    """Return the certificate and key of agnhost's porter, from the module of Kubernetes."""
    pattern = rf"^k8s\.io/kubernetes {re.escape(release)} (h1:\S+)$"
    found = re.search(pattern, (MODULE / "go.sum").read_text(), re.MULTILINE)
    if found is None:
        msg = f"go.sum has no checksum of Kubernetes {release}"
        raise SetupError(msg)
    folder = module_folder("k8s.io/kubernetes", release, found[1]) / "test/images/agnhost/porter"
    return {name: folder / name for name in _CERTIFICATES}


def _digest(listed: Sequence[str], contents: Mapping[str, Path], packages: Sequence[Path]) -> str:
    """Return a digest of everything that the archive depends on."""
    parts = [Path(__file__).read_text(), *listed, *(path.name for path in packages)]
    for path in contents.values():
        with path.open("rb") as file:
            parts.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fill(root: Path, contents: Mapping[str, Path], packages: Sequence[Path]) -> None:
    for name in _MERGED:
        (root / "usr" / name).mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for name, mode in _DIRECTORIES.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
    for package in packages:
        _unpack(package, root)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    for name, target in _LINKS.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)
    with (root / _WGETRC).open("a") as file:
        file.write(_ONE_TRY)
    for name, source in contents.items():
        shutil.copyfile(source, root / name)
        (root / name).chmod(0o644 if name in _CERTIFICATES else 0o755)


def _unpack(package: Path, root: Path) -> None:
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        msg = f"{package} cannot be unpacked: {done.stderr.decode(errors='replace').strip()}"
        raise SetupError(msg)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(root, members=_used_members(archive))  # noqa: S202 - checked by SHA-256


def _used_members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files to unpack, under their merged paths."""
    for member in archive:
        member.name = _merged(member.name)
        if member.islnk():
            member.linkname = _merged(member.linkname)
        is_present = member.name in (".", "usr", *(f"usr/{name}" for name in _MERGED))
        if not is_present and not member.isdev() and not _UNUSED.match(f"{member.name}/"):
            yield member


def _merged(name: str) -> str:
    path = PurePosixPath(name)
    return str("usr" / path) if path.parts and path.parts[0] in _MERGED else str(path)
