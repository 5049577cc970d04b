"""iptables of every backend and family, and ipset: read and changed through their own programs."""

import time
from dataclasses import dataclass

from knft.errors import KernelError
from knft.kernel import programs

CHANGE_SECONDS = 300.0
"""When a change counts as hung; iptables-legacy takes some seconds for 100 000 rules."""
_LOCK_SECONDS = "10"
"""How long iptables-legacy waits for others that hold its lock."""
_IN_USE = "in use by a kernel component"
_NO_SUCH_SET = "does not exist"
_NO_IPSET = ("Cannot open session to kernel", "Kernel support")


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to the rules of one family, such as ``ip6tables-legacy``, and its programs."""

    name: str
    save: str
    restore: str


def backends() -> tuple[Backend, ...]:
    """Return the backends that are installed: both where there are both, as leftovers may be in either."""
    found = (_backend(f"{family}-{kind}") for kind in ("nft", "legacy") for family in ("iptables", "ip6tables"))
    named = tuple(backend for backend in found if backend is not None)
    if named:
        return named
    # A system with one backend alone may have it under the plain name.
    plain = (_backend(family) for family in ("iptables", "ip6tables"))
    return tuple(backend for backend in plain if backend is not None)


def _backend(name: str) -> Backend | None:
    save, restore = programs.find(f"{name}-save"), programs.find(f"{name}-restore")
    return Backend(name, save, restore) if save and restore else None


def save(backend: Backend, seconds: float = CHANGE_SECONDS) -> str:
    """Return all rules; asks for no table by name, so that none is made by asking. Raises KernelError."""
    return programs.run([backend.save], seconds)


def restore(backend: Backend, text: str) -> None:
    """Carry out ``text``, each table as one transaction; raise KernelError where one is refused."""
    programs.run([backend.restore, "-w", _LOCK_SECONDS, "--noflush"], CHANGE_SECONDS, text)


def list_sets(seconds: float = CHANGE_SECONDS) -> str | None:
    """Return the names of all sets, a line each; None without the program or the kernel's part. Raises KernelError."""
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
    """Return one set as commands; raise KernelError where it cannot be read."""
    return programs.run([programs.find("ipset") or "ipset", "save", name], seconds)


def save_sets(seconds: float = CHANGE_SECONDS) -> str | None:
    """Return all sets as commands, None without the program; raise KernelError where they cannot be read.

    To be asked where a rule names a set: otherwise the kernel may load a module because of the question.
    """
    program = programs.find("ipset")
    return None if program is None else programs.run([program, "save"], seconds)


def destroy_set(name: str, deadline: float) -> None:
    """Destroy a set, trying again until ``deadline`` (time.monotonic) while rules hold it; harmless where it is gone.

    Raises KernelError where it cannot be destroyed.
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
