"""What /proc tells about the privileges of a process: its status and its mounts. Computes only."""

from collections.abc import Mapping

from msgspec import Struct

NET_ADMIN = f"{1 << 12:016x}"
"""The only capability CAP_NET_ADMIN, as /proc/PID/status writes a set."""
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SECCOMP_FILTER = "2"


class Mount(Struct, frozen=True):
    """The options of a mount, and those of its file system."""

    options: frozenset[str]
    file_system_options: frozenset[str]

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written through this mount."""
        return "ro" in self.options


def parse_status(text: str) -> Mapping[str, str]:
    """Return the fields of /proc/PID/status, their values separated by one space."""
    return {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in text.splitlines())}


def parse_mounts(text: str) -> Mapping[str, Mount]:
    """Return the mounts of /proc/PID/mountinfo by their mount points, of several the last one."""
    found = {}
    for line in text.splitlines():
        mount, _, file_system = line.partition(" - ")
        fields = mount.split()
        found[fields[4]] = Mount(_options(fields[5]), _options(file_system.split()[-1]))
    return found


def _options(text: str) -> frozenset[str]:
    return frozenset(text.split(","))
