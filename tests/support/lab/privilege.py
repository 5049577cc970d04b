"""The right to make network namespaces: root has it, and so has everybody in a user namespace of their own.

``python -m tests.support.lab.privilege COMMAND ...`` runs a command with that right, much as ``unshare -Urn`` does.
"""

import os
import sys
import time
from pathlib import Path

from .namespace import CLONE_NEWNET, Namespace, unshare

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_GUARD = "LAB_IN_USER_NAMESPACE"
_HELP = (
    "network namespaces cannot be made here: run this as root, or allow unprivileged user namespaces "
    "(sysctl user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0 where it exists)"
)


class PrivilegeError(Exception):
    """Neither this user nor a user namespace of theirs may make network namespaces."""


def can_make_namespaces() -> bool:
    """Tell whether this process can make a network namespace, enter it, and come back."""
    try:
        namespace = Namespace.create("probe")
    except OSError:
        return False
    try:
        with namespace.entered():
            return True
    except OSError:
        return False
    finally:
        namespace.close()


def ensure_namespaces() -> None:
    """Return if network namespaces can be made; otherwise start this command again where they can.

    Call it first thing in a program, while there is one thread and nothing is open or buffered: the process becomes
    the new run of its own command, as root of a new user namespace.
    """
    if can_make_namespaces():
        return
    if os.environ.get(_GUARD):  # This is the second run already.
        raise PrivilegeError(_HELP)
    try:
        _become_root_of_user_namespace()
    except OSError as error:
        raise PrivilegeError(_HELP) from error
    os.environ[_GUARD] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command


def _become_root_of_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    # The probe's thread may still be on its way out, and only a process of one thread may enter a user namespace.
    for _ in range(1000):
        if len(list(Path("/proc/self/task").iterdir())) == 1:
            break
        time.sleep(0.001)
    # The network namespace too: one can only go back to a namespace that one's own user namespace owns.
    unshare(_CLONE_NEWUSER | CLONE_NEWNET | _CLONE_NEWNS)
    own = Path("/proc/self")
    # The kernel lets an ordinary user map their group only after they give up setgroups().
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"0 {user} 1")
    (own / "gid_map").write_text(f"0 {group} 1")


def _main() -> None:
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m tests.support.lab.privilege COMMAND ...")
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(str(error))
    os.execvp(command[0], command)  # noqa: S606 - running what the caller names is the purpose


if __name__ == "__main__":
    _main()
