"""The privilege to make network namespaces, which root has, and any user in a user namespace of their own.

``python -m tests.support.privilege COMMAND ...`` runs a command with it, in a user namespace if needed, as
``unshare -Urn`` does.
"""

import os
import sys
import time
from pathlib import Path

from tests.support.lab.namespace import CLONE_NEWNET, Namespace, unshare

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_GUARD = "LAB_IN_USER_NAMESPACE"
_THREAD_TIMEOUT = 60.0
_HELP = (
    "cannot create network namespaces: run this as root, or allow unprivileged user namespaces "
    "(sysctl user.max_user_namespaces above 0, kernel.apparmor_restrict_unprivileged_userns=0 where it exists)"
)


class PrivilegeError(Exception):
    """Network namespaces cannot be created, not even in a user namespace."""


def can_make_namespaces() -> bool:
    """Tell whether this process can create a network namespace, enter it, and return."""
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
    """Return if network namespaces can be created; otherwise run this command again in a new user namespace.

    Call it first in a program, while there is one thread and no open file or buffered output: the process executes its
    own command again, as root of the user namespace. Raises PrivilegeError if that is not allowed either.
    """
    if can_make_namespaces():
        return
    if os.environ.get(_GUARD):  # This is the second run.
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
    # Only a process with one thread may enter a user namespace, and the probe's thread may still be ending.
    deadline = time.monotonic() + _THREAD_TIMEOUT
    while len(list(Path("/proc/self/task").iterdir())) > 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    # The network namespace too: setns() needs privilege in the user namespace that owns the target.
    unshare(_CLONE_NEWUSER | CLONE_NEWNET | _CLONE_NEWNS)
    own = Path("/proc/self")
    # An unprivileged user may map a group only after setgroups() is denied (user_namespaces(7)).
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"0 {user} 1")
    (own / "gid_map").write_text(f"0 {group} 1")


def _main() -> None:
    command = sys.argv[1:]
    if not command:
        sys.exit("usage: python -m tests.support.privilege COMMAND ...")
    try:
        ensure_namespaces()
    except PrivilegeError as error:
        sys.exit(str(error))
    os.execvp(command[0], command)  # noqa: S606 - running what the caller names is the purpose


if __name__ == "__main__":
    _main()
