"""Sets conntrack's kernel parameters: computes the desired values, then compares and writes them.

See docs/behaviour/conntrack.md#sysctls. kube-proxy's nftables mode sets no other sysctls: it needs neither
route_localnet nor the bridge sysctls (docs/behaviour/nftables.md#start).
"""

import errno
import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from knft.errors import ReadOnlySysctlError, UnsupportedError

_NETFILTER = "proc/sys/net/netfilter"
_BE_LIBERAL = f"{_NETFILTER}/nf_conntrack_tcp_be_liberal"
_HASH_SIZE = "sys/module/nf_conntrack/parameters/hashsize"
_ONLINE_PROCESSORS = "sys/devices/system/cpu/online"
_FLOWS_PER_BUCKET = 4
"""More flows per hash bucket make lookups slow."""
_MAX_SCALED_FLOWS = 1 << 20
"""The upper limit of ``conntrack.maxPerCore`` times processors: more would waste memory on large hosts."""


class ConntrackOptions(Protocol):
    """The conntrack options of the configuration; 0 and False leave a parameter unchanged. Timeouts are in seconds.

    knft.configuration.settings.ConntrackSettings provides them; this package may not import it.
    """

    @property
    def max_per_core(self) -> int: ...  # noqa: D102 - kube-proxy's names
    @property
    def minimum(self) -> int: ...  # noqa: D102
    @property
    def tcp_established_timeout(self) -> float: ...  # noqa: D102
    @property
    def tcp_close_wait_timeout(self) -> float: ...  # noqa: D102
    @property
    def tcp_be_liberal(self) -> bool: ...  # noqa: D102
    @property
    def udp_timeout(self) -> float: ...  # noqa: D102
    @property
    def udp_stream_timeout(self) -> float: ...  # noqa: D102


class DesiredValue(Struct, frozen=True):
    """The value of one file, relative to the root directory, and the flag that leaves the file unchanged.

    With ``at_least`` a larger value is accepted.
    """

    path: str
    value: int
    opt_out_flag: str
    at_least: bool = False

    def accepts(self, value: int) -> bool:
        """Return whether a file with ``value`` can stay as it is."""
        return value >= self.value if self.at_least else value == self.value


def desired_values(options: ConntrackOptions, processors: int) -> Iterator[DesiredValue]:
    """Yield the desired values in kube-proxy's order, for a host with that many processors."""
    max_flows = _max_flows(options, processors)
    if max_flows > 0:
        flag = "--conntrack-max-per-core=0"
        yield DesiredValue(f"{_NETFILTER}/nf_conntrack_max", max_flows, flag, at_least=True)
        yield DesiredValue(_HASH_SIZE, max_flows // _FLOWS_PER_BUCKET, flag, at_least=True)
    yield from _seconds("tcp_timeout_established", options.tcp_established_timeout, "tcp-timeout-established")
    yield from _seconds("tcp_timeout_close_wait", options.tcp_close_wait_timeout, "tcp-timeout-close-wait")
    if options.tcp_be_liberal:
        yield DesiredValue(_BE_LIBERAL, 1, "--conntrack-tcp-be-liberal=false")
    yield from _seconds("udp_timeout", options.udp_timeout, "udp-timeout")
    yield from _seconds("udp_timeout_stream", options.udp_stream_timeout, "udp-timeout-stream")


def _max_flows(options: ConntrackOptions, processors: int) -> int:
    """Return the maximum number of flows, 0 to leave it unchanged; the cap precedes the minimum, as in kube-proxy."""
    if options.max_per_core <= 0:
        return 0
    scaled = options.max_per_core * processors
    return _MAX_SCALED_FLOWS if scaled > _MAX_SCALED_FLOWS else max(scaled, options.minimum)


def _seconds(name: str, seconds: float, flag: str) -> Iterator[DesiredValue]:
    if seconds > 0:
        # The kernel takes whole seconds; 0 would expire flows at once.
        yield DesiredValue(f"{_NETFILTER}/nf_conntrack_{name}", math.ceil(seconds), f"--conntrack-{flag}=0")


def online_processors(root: Path = Path("/"), fallback: Callable[[], int | None] = os.cpu_count) -> int:
    """Return the number of online processors of the host, including those that this process may not use."""
    try:
        ranges = [
            part.split("-") for part in (root / _ONLINE_PROCESSORS).read_text(encoding="ascii").strip().split(",")
        ]
        return sum(int(numbers[-1]) - int(numbers[0]) + 1 for numbers in ranges)
    except (OSError, ValueError):
        return fallback() or 1


class DifferingValue(Struct, frozen=True):
    """A parameter that ``set_conntrack`` would change; ``current`` is empty if the file cannot be read."""

    path: str
    current: str
    desired: int


def differing_values(options: ConntrackOptions, root: Path = Path("/")) -> tuple[DifferingValue, ...]:
    """Return the parameters that ``set_conntrack`` would change; write nothing."""
    found = []
    for desired in desired_values(options, online_processors(root)):
        current = ""
        with suppress(OSError, ValueError):
            current = (root / desired.path).read_text(encoding="ascii").strip()
            if desired.accepts(int(current)):
                continue
        found.append(DifferingValue(desired.path, current, desired.value))
    return tuple(found)


def conntrack_is_liberal(root: Path = Path("/")) -> bool:
    """Tell whether conntrack accepts TCP packets outside the window; False if the kernel does not tell."""
    with suppress(OSError, ValueError):
        return int((root / _BE_LIBERAL).read_text(encoding="ascii")) != 0
    return False


def set_conntrack(options: ConntrackOptions, root: Path = Path("/")) -> list[str]:
    """Write the parameters that differ from ``options``; return a line of text for each change.

    The files exist once the kernel has loaded conntrack, which any NAT rule causes, such as those of ``probe``. Raises
    UnsupportedError at the first file that cannot be written, or ReadOnlySysctlError if its file system is read-only,
    as in a container without privileges; later ones are then unchanged. If all values are as desired, nothing is
    written, and no write permission is needed.
    """
    return [
        change
        for desired in desired_values(options, online_processors(root))
        for change in _apply(root / desired.path, desired)
    ]


def _apply(path: Path, desired: DesiredValue) -> Iterator[str]:
    before = "unknown"
    try:
        before = path.read_text(encoding="ascii").strip()
        if desired.accepts(int(before)):
            return
        path.write_text(str(desired.value), encoding="ascii")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a number"
        msg = (
            f"could not set conntrack parameters: {path}: {reason} (current value {before}, desired {desired.value}); "
            "run knft with --init-only in a privileged init container, "
            f"or leave the parameter unchanged with {desired.opt_out_flag}"
        )
        is_read_only = isinstance(error, OSError) and error.errno == errno.EROFS
        raise (ReadOnlySysctlError if is_read_only else UnsupportedError)(msg) from error
    yield f"{path}: changed from {before} to {desired.value}"
