"""The Debian releases that have a package, and the packages of the root directories in which it is built and tested."""

from collections.abc import Mapping

from msgspec import Struct

from deploy.roots.cached import RELEASES, Release


class Target(Struct, frozen=True):
    """A release for which a package is built."""

    release: Release
    build: tuple[str, ...]
    """Packages for the build (debian/control), for knft's tests, and lintian, because its checks fit the release."""
    runtime: tuple[str, ...]
    """Packages that knft's package depends on or recommends, and those that its tests depend on."""
    has_wheels: bool = False
    """Whether the package contains Python packages from wheels."""


_BUILD = ("debhelper", "dpkg-dev", "fakeroot", "lintian", "python3")
_RUNTIME = ("iproute2", "nftables", "python3", "python3-nftables")
_LIBRARIES = (
    *("python3-click", "python3-jinja2", "python3-jsonschema", "python3-msgspec", "python3-nftables"),
    *("python3-prometheus-client", "python3-pyroute2", "python3-rich", "python3-urllib3", "python3-watchfiles"),
    "python3-yaml",
)
_TESTS = (
    *("conntrack", "iproute2", "ipset", "iptables", "nftables", "procps"),
    *("python3-hypothesis", "python3-pytest"),
)

TARGETS: Mapping[str, Target] = {
    target.release.name: target
    for target in (
        Target(RELEASES["debian12"], (*_BUILD, "python3-pip"), _RUNTIME, has_wheels=True),
        Target(
            RELEASES["debian13"],
            (*_BUILD, "dh-python", "pybuild-plugin-pyproject", "python3-hatchling", *_LIBRARIES, *_TESTS),
            (*_RUNTIME, *_LIBRARIES),
        ),
    )
}

CLEAN = ("dbus", "systemd", "systemd-sysv")
"""Packages of the clean root directories in which packages are installed for tests: a host without them is rare."""

TOOLS = ("autopkgtest", "lintian", "python3", "rpm", "rpmlint", "twine")
"""Packages of the root directory of Debian 13 with tools that check packages."""
