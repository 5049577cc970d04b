"""iptables (nft and legacy, both families) and ipset: reads and changes them through their programs."""

import time
from dataclasses import dataclass

from knft.errors import KernelError
from knft.kernel import programs

CHANGE_SECONDS = 300.0
"""After this time a change is considered hung; iptables-legacy takes some seconds for 100 000 rules."""
_LOCK_SECONDS = "10"
"""How long iptables-legacy waits for the xtables lock."""
_IN_USE = "in use by a kernel component"
_NO_SUCH_SET = "does not exist"
_NO_IPSET = ("Cannot open session to kernel", "Kernel support")


@dataclass(frozen=True, slots=True)
class Backend:
    """The programs of one family and backend, such as ``ip6tables-legacy``."""

    name: str
    save: str
    restore: str


def backends() -> tuple[Backend, ...]:
    """Return the installed backends: nft and legacy if both are installed, since either may hold leftovers."""
    found = (_backend(f"{family}-{kind}") for kind in ("nft", "legacy") for family in ("iptables", "ip6tables"))
    named = tuple(backend for backend in found if backend is not None)
    if named:
        return named
    # A host with only one backend may provide it without a suffix.
    plain = (_backend(family) for family in ("iptables", "ip6tables"))
    return tuple(backend for backend in plain if backend is not None)


def _backend(name: str) -> Backend | None:
    save, restore = programs.find(f"{name}-save"), programs.find(f"{name}-restore")
    return Backend(name, save, restore) if save and restore else None


def save(backend: Backend, seconds: float = CHANGE_SECONDS) -> str:
    """Return all rules; raise KernelError on failure. The command names no table, since that would create the table."""
    return programs.run([backend.save], seconds)


def restore(backend: Backend, text: str) -> None:
    """Apply ``text``, each table as one transaction; raise KernelError if one is refused."""
    programs.run([backend.restore, "-w", _LOCK_SECONDS, "--noflush"], CHANGE_SECONDS, text)


def list_sets(seconds: float = CHANGE_SECONDS) -> str | None:
    """Return the names of all sets, one per line; None without the program or kernel support. Raises KernelError."""
    program = programs.find("ipset")
    if program is None:
        return None
    try:
        return programs.run([program, "list", "-name"], seconds)
    except KernelError as error:
        if any(words in error.detail for words in _NO_IPSET):
            return None
        raise


def save_set(name: str, seconds: float = CHANGE_SECONDS) -> str:
    """Return one set as ipset commands; raise KernelError if it cannot be read."""
    return programs.run([programs.find("ipset") or "ipset", "save", name], seconds)


def save_sets(seconds: float = CHANGE_SECONDS) -> str | None:
    """Return all sets as ipset commands, None without the program; raise KernelError if they cannot be read.

    Call this only if a rule refers to a set: otherwise the request may make the kernel load a module.
    """
    program = programs.find("ipset")
    return None if program is None else programs.run([program, "save"], seconds)


def destroy_set(name: str, deadline: float) -> None:
    """Destroy a set; while rules use it, retry until ``deadline`` (time.monotonic). Succeed if it does not exist.

    Raises KernelError if the set cannot be destroyed.
    """
    while True:
        try:
            programs.run([programs.find("ipset") or "ipset", "destroy", name], CHANGE_SECONDS)
        except KernelError as error:
            if _NO_SUCH_SET in error.detail:
                return
            if _IN_USE not in error.detail or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
