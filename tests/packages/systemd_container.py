"""SystemdContainer: boots a root directory with its own systemd, by systemd-nspawn, and runs commands in it.

The container has a network namespace, mounts and cgroups of its own, and keeps what it writes in memory: the root
directory stays as it is. It needs neither systemd on this machine nor its D-Bus. If the test ends for any reason, the
kernel kills the container.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

from deploy.cluster import cgroups
from deploy.cluster.cgroups import Hierarchy
from tests.support.lab.namespace import Namespace
from tests.support.waiting import wait_until

# nspawn has files in /run, and uses the cgroup in which it is started.
_START = (
    'mount -t tmpfs run /run && for file in $CGROUPS; do echo $$ >"$file" || exit; done && unset CGROUPS && exec "$@"'
)
_NAMESPACES = ("--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
_NSPAWN = (
    *("systemd-nspawn", "--quiet", "--volatile=overlay", "--register=no", "--keep-unit", "--private-network"),
    *("--capability=CAP_NET_ADMIN", "--console=pipe", "--boot"),
)
# systemd of Debian 13 refuses to boot with cgroup v1.
_UNIFIED = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
# Two containers may use a root directory at once, because they do not change it.
_UNLOCKED = {"SYSTEMD_NSPAWN_LOCK": "0"}
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_PREFIX = "knft-container-"
_LIMIT_SECONDS = 600.0
"""After what time a command in the container counts as hanging; apt takes minutes on a busy machine."""
_BOOTED = {"running", "degraded"}


class SystemdContainer:
    """A booted root directory; a context manager, which kills it."""

    def __init__(self, root: Path, shared: Mapping[Path, str] | None = None) -> None:
        """Take the root directory, and directories of this machine that it shows at other places, read-only."""
        self._root = root
        self._shared = shared or {}
        self._first_process = 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        """Boot, and wait until systemd has started everything."""
        with ExitStack() as opened:
            log = opened.enter_context(tempfile.TemporaryFile("w+"))
            nspawn = opened.enter_context(self._started(log.fileno()))

            def require_running() -> None:
                if nspawn.poll() is not None:
                    log.seek(0)
                    raise AssertionError(log.read())

            wait_until(
                lambda: self._is_booted(nspawn.pid), "the container does not boot", require_running, interval=0.1
            )
            network = os.open(f"/proc/{self._first_process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self.namespace = Namespace("container", network)
            opened.callback(self.namespace.close)
            self._opened = opened.pop_all()
        return self

    @contextmanager
    def _started(self, log: int) -> Iterator["subprocess.Popen[str]"]:
        binds = [f"--bind-ro={source}:{target}" for source, target in self._shared.items()]
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES]
        command += ["sh", "-c", _START, "sh", *_NSPAWN, f"--directory={self._root}", *binds]
        with _own_cgroups() as files:
            environment = {**_ENVIRONMENT, **_UNIFIED, **_UNLOCKED, "CGROUPS": " ".join(files)}
            with subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
            ) as nspawn:
                try:
                    yield nspawn
                finally:
                    # The kernel then kills all processes of its PID namespace.
                    nspawn.kill()
                    nspawn.wait()
                    wait_until(self._has_ended, "the container does not end")

    def _is_booted(self, starter: int) -> bool:
        if not self._first_process:
            for nspawn in _children(starter):
                self._first_process = next((each for each in _children(nspawn) if _name(each) == "systemd"), 0)
            return False
        return self.run("systemctl", "is-system-running", check=False).stdout.strip() in _BOOTED

    def _has_ended(self) -> bool:
        return not self._first_process or not Path(f"/proc/{self._first_process}").exists()

    def __exit__(self, *_: object) -> None:
        """Kill the container, and forget what it has written."""
        self._opened.close()

    def run(self, *command: str, stdin: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in the container; with ``check``, raise CalledProcessError with its output if it fails."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid")
        variables = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
        entered = ["nsenter", f"--target={self._first_process}", *spaces, "--", "env", "-i", *variables, *command]
        done = subprocess.run(entered, input=stdin, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS)
        if check and done.returncode != 0:
            failure = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
            failure.add_note(f"in the container, its output:\n{done.stdout}{done.stderr}")
            raise failure
        return done

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self.run("cat", path).stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of root."""
        self.run("sh", "-c", f'umask {0o777 & ~mode:o} && mkdir -p "${{0%/*}}" && cat >"$0"', path, stdin=text)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).stdout.strip()


def _children(process: int) -> list[int]:
    with suppress(OSError):  # It has ended.
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


def _name(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/comm").read_text().strip()
    return ""


@contextmanager
def _own_cgroups() -> Iterator[list[str]]:
    """Make cgroups for the container below those of this process; yield their files that move a process into them."""
    own, name = _systemd_hierarchies(), f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
    for each in own:
        cgroups.remove([each.child(left) for left in _left_names(Path(each.folder))])
    made = [each.child(name) for each in own]
    for each in made:
        Path(each.folder).mkdir()
    try:
        yield [f"{each.folder}/cgroup.procs" for each in made]
    finally:
        cgroups.remove(made)


def _left_names(folder: Path) -> list[str]:
    """Return the names of cgroups that were left by a test which was killed."""
    names = [path.name for path in folder.glob(f"{_PREFIX}*")]
    return [name for name in names if not Path("/proc", name.removeprefix(_PREFIX).partition("-")[0]).exists()]


def _systemd_hierarchies() -> list[Hierarchy]:
    """Return this process's cgroups in the hierarchies that systemd uses: that of v2, and one of v1 beside it."""
    own, mounts = Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    lines = [line for line in own.splitlines() if line.split(":")[1] in ("", "name=systemd")]
    return [each for line in lines for each in cgroups.parse_cgroups(f"{line}\n", mounts)]
