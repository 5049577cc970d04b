"""The variants of the image: which Debian it is built from, and which packages it has."""

import platform
from collections.abc import Mapping

from msgspec import Struct

from deploy.image.errors import ImageError


class Architecture(Struct, frozen=True):
    """An architecture by its names: of Debian and OCI, of the kernel and of the C library's loader."""

    name: str
    machine: str
    loader: str
    """The path of the loader in the root directory."""

    @property
    def libraries(self) -> str:
        """The directory of the shared libraries in the root directory."""
        return f"usr/lib/{self.machine}-linux-gnu"


ARCHITECTURES: Mapping[str, Architecture] = {
    "amd64": Architecture("amd64", "x86_64", "usr/lib64/ld-linux-x86-64.so.2"),
    "arm64": Architecture("arm64", "aarch64", "usr/lib/ld-linux-aarch64.so.1"),
}


def native_architecture() -> Architecture:
    """Return this machine's architecture; raise ImageError if images cannot be built on it."""
    machine = platform.machine()
    for architecture in ARCHITECTURES.values():
        if architecture.machine == machine:
            return architecture
    msg = f"no image can be built on a machine of type {machine}: use amd64 or arm64"
    raise ImageError(msg)


class Variant(Struct, frozen=True):
    """One Debian release, with its Python and its libnftables."""

    name: str
    suite: str
    python: str
    packages: tuple[str, ...]
    excluded: tuple[str, ...]
    """Packages that others depend on, for their scripts or for modules of Python that the image lacks (``prune``)."""


_UNUSED = (
    *("debconf", "dpkg", "tar", "libacl1", "libselinux1", "libpcre2-8-0", "perl-base", "tzdata"),  # scripts
    *("libnsl2", "libtirpc3", "libtirpc3t64", "libtirpc-common", "libkeyutils1", "libcom-err2"),  # nis
    *("libkrb5-3", "libkrb5support0", "libgssapi-krb5-2", "libk5crypto3"),  # nis
    *("libdb5.3", "libdb5.3t64", "libsqlite3-0", "libncursesw6", "media-types"),  # dbm, sqlite3, curses, mimetypes
    *("libreadline8", "libreadline8t64", "readline-common", "libuuid1", "libcrypt1"),  # readline, _uuid, crypt
    "openssl-provider-legacy",
    *("lsb-base", "sysvinit-utils"),  # init scripts
    "mawk",  # base-files' scripts
)


_PROGRAMS = ("nftables", "netbase", "iptables", "ipset", "ipvsadm")
_LICENCES = "base-files"
"""The package with the texts of the common licences, and the name of the release, which scanners look for."""


def _variant(name: str, suite: str, python: str) -> Variant:
    # nftables is the command nft, to look at the tables in the pod; netbase has the names of protocols, which it shows.
    # iptables, ipset and ipvsadm read and remove kube-proxy's rules.
    packages = (f"python{python}-minimal", f"libpython{python}-stdlib", "libnftables1", *_PROGRAMS, _LICENCES)
    return Variant(name, suite, python, packages, _UNUSED)


VARIANTS: Mapping[str, Variant] = {
    variant.name: variant
    for variant in (
        # libnftables 1.0.6, which writes tables that the nft of older hosts lists.
        _variant("debian12", "bookworm", "3.11"),
        # libnftables 1.1.3, with which knft owns its tables (Linux 6.9).
        _variant("debian13", "trixie", "3.13"),
    )
}
DEFAULT = "debian12"
