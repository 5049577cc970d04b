"""Checks the kernel, libnftables and the host's ``nft``."""

import re
from collections.abc import Iterator

from knft.preflight.facts import HostFacts, Unread
from knft.preflight.report import Finding, not_checked

_TESTED_KERNEL = (6, 1)
_OLDEST_LIBRARY = (1, 0, 6)
_READ_LIBNFTABLES = "do what point libnftables says, and run the command again"
_NUMBERS = re.compile(r"(?<![\d.])\d{1,9}(?:\.\d{1,9}){1,3}")


def check_kernel(host: HostFacts) -> Iterator[Finding]:
    """Yield whether the kernel has what knft needs."""
    if isinstance(host.libnftables, Unread):
        text = f"features of Linux {host.kernel}: libnftables cannot be used"
        yield Finding("not checked", text, _READ_LIBNFTABLES)
    elif isinstance(host.unsupported, Unread):
        yield not_checked(f"features of Linux {host.kernel}", host.unsupported)
    elif host.unsupported:
        remedy = "use a kernel with the named options, or load its modules: `knft run` does not start without them"
        yield Finding("problem", f"Linux {host.kernel}: {host.unsupported}", remedy)
    elif _version(host.kernel) < _TESTED_KERNEL:
        text = f"Linux {host.kernel} has the features that `knft run` looks for, but knft is tested with 6.1 and newer"
        yield Finding("warning", text, "switch one node of this kernel first, or update the kernel")
    else:
        yield Finding("ok", f"Linux {host.kernel} has the features that `knft run` looks for at its start")


def check_library(host: HostFacts) -> Iterator[Finding]:
    """Yield whether libnftables works."""
    if isinstance(host.libnftables, Unread):
        # The probe names the sets with which an old libnftables crashes.
        text = (not isinstance(host.unsupported, Unread) and host.unsupported) or host.libnftables.reason
        yield Finding("problem", text, "correct the cause, or use an image of knft with another libnftables")
    elif _version(host.libnftables) < _OLDEST_LIBRARY:
        text = f"libnftables {host.libnftables} is older than 1.0.6"
        yield Finding("problem", text, "install libnftables 1.0.6 or newer, or use knft's image")
    else:
        yield Finding("ok", f"libnftables {host.libnftables} works")


def check_nft(host: HostFacts) -> Iterator[Finding]:
    """Yield whether the host's ``nft`` and knft's libnftables can read each other's sets."""
    if host.is_image:
        text = "the nft of knft's image was found, and not the host's"
        remedy = f"run `nft --version` on the node: it should be {_text(host.libnftables)}, as knft's libnftables"
        yield Finding("not checked", text, remedy)
    elif isinstance(host.nft_version, Unread):
        yield not_checked("version", host.nft_version)
    elif host.nft_version is None:
        yield Finding("ok", "there is no nft on this machine")
    elif isinstance(host.libnftables, Unread):
        yield Finding("not checked", "the version of knft's libnftables is unknown", _READ_LIBNFTABLES)
    else:
        yield _compared_versions(host.nft_version, host.libnftables)


def _compared_versions(nft_output: str, library: str) -> Finding:
    found = _NUMBERS.search(nft_output)
    if found is None:
        text = f"nft reports no version: {nft_output.strip()}"
        return Finding("not checked", text, "compare the versions that `nft --version` and `knft version` print")
    nft = found[0]
    same = "use the same version for both: that of the distribution, or the image of knft that has it"
    if _version(nft) < _version(library):
        text = f"nft {nft} is older than knft's libnftables {library}: `nft list ruleset` can crash on knft's tables"
        return Finding("warning", text, same)
    if _version(nft) > _version(library):
        text = (
            f"nft {nft} is newer than knft's libnftables {library}, which can crash on sets that nft creates, "
            "in any table"
        )
        return Finding("warning", text, same)
    return Finding("ok", f"nft {nft} has the version of knft's libnftables")


def _version(text: str) -> tuple[int, ...]:
    found = _NUMBERS.search(text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _text(version: str | Unread) -> str:
    return "the same version" if isinstance(version, Unread) else version
