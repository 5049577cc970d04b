"""The directory with a cluster's state: plan, keys, logs, data; never inside the checkout."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from deploy.cluster.plan import Plan
from deploy.programs.errors import SetupError


class Tools(Struct, frozen=True):
    """The programs that a cluster was started with: it keeps them if the cache gets newer ones."""

    programs: str
    """The directory of the Go programs."""
    release: str
    packages: str
    """The directory of the unpacked Debian packages."""
    libraries: str


def default_folder() -> Path:
    """Return the directory of the cluster that ``make cluster`` starts."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "knft" / "cluster"


class State:
    """The files of one cluster."""

    def __init__(self, folder: Path) -> None:
        """Create nothing."""
        self.folder = folder.absolute()

    @property
    def exists(self) -> bool:
        """Whether a cluster was started and not removed."""
        return self.folder.exists()

    def check_absent(self) -> None:
        """Raise SetupError if a cluster exists."""
        if self.exists:
            msg = f"a cluster exists in {self.folder}: use it, or remove it first (make cluster-down)"
            raise SetupError(msg)

    def create(self, plan: Plan, tools: Tools) -> None:
        """Create the directory."""
        for each in (self.folder, self.logs, self.generated):
            each.mkdir(parents=True, mode=0o700)
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        self._tools.write_bytes(msgspec.json.encode(tools))

    def read_plan(self) -> Plan:
        """Return the plan of the cluster; raise SetupError if there is none."""
        try:
            return msgspec.json.decode((self.folder / "plan.json").read_bytes(), type=Plan)
        except FileNotFoundError as error:
            msg = f"no cluster exists in {self.folder}: start one (make cluster)"
            raise SetupError(msg) from error

    def read_tools(self) -> Tools | None:
        """Return the programs of the cluster, None if there is no cluster."""
        return msgspec.json.decode(self._tools.read_bytes(), type=Tools) if self._tools.exists() else None

    @property
    def _tools(self) -> Path:
        return self.folder / "tools.json"

    def remove(self) -> None:
        """Delete the directory."""
        if self.exists:
            shutil.rmtree(self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let only one process start or remove the cluster; raise SetupError if another one does."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    @property
    def cgroup_prefix(self) -> str:
        """The beginning of the names of the cluster's cgroups."""
        return f"knft-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"

    @property
    def logs(self) -> Path:
        """The directory of all logs."""
        return self.folder / "logs"

    @property
    def keys(self) -> Path:
        """The directory of keys, certificates and kubeconfigs."""
        return self.folder / "keys"

    @property
    def generated(self) -> Path:
        """The directory of the manifests that were applied."""
        return self.folder / "manifests"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for the machine's own network namespace."""
        return self.folder / "kubeconfig"

    def machine(self, name: str) -> Path:
        """Return the directory of the control plane or of a node."""
        return self.folder / "machines" / name

    def machines(self) -> list[str]:
        """Return the names of all machines that were started."""
        folder = self.folder / "machines"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        msg = "another process is starting or removing a cluster: wait for its end"
        raise SetupError(msg) from error
