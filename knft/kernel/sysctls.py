"""Conntrack's settings (I.7): decided from values alone, then read, compared and written where they differ.

kube-proxy's nftables mode sets no others: neither route_localnet nor anything of bridges is needed (C.1).
"""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from knft.errors import UnsupportedError

_NETFILTER = "proc/sys/net/netfilter"
_HASH_SIZE = "sys/module/nf_conntrack/parameters/hashsize"
_ONLINE = "sys/devices/system/cpu/online"
_FLOWS_A_BUCKET = 4
"""With more, lookups take longer than they should."""


class Wishes(Protocol):
    """What an operator can say about conntrack; 0 and False leave things as they are. Timeouts are seconds."""

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


class Setting(Struct, frozen=True):
    """What one file, below the root folder, is to say, or ``at_least``; and the flag that leaves it alone."""

    path: str
    value: int
    otherwise: str
    at_least: bool = False

    def accepts(self, value: int) -> bool:
        """Whether nothing has to be written where the file has ``value``."""
        return value >= self.value if self.at_least else value == self.value


def settings(wishes: Wishes, processors: int) -> Iterator[Setting]:
    """Yield what is to be set, in kube-proxy's order, on a machine with so many processors."""
    most = max(wishes.max_per_core * processors, wishes.minimum) if wishes.max_per_core > 0 else 0
    if most > 0:
        flag = "--conntrack-max-per-core=0"
        yield Setting(f"{_NETFILTER}/nf_conntrack_max", most, flag)
        yield Setting(_HASH_SIZE, most // _FLOWS_A_BUCKET, flag, at_least=True)
    yield from _seconds("tcp_timeout_established", wishes.tcp_established_timeout, "tcp-timeout-established")
    yield from _seconds("tcp_timeout_close_wait", wishes.tcp_close_wait_timeout, "tcp-timeout-close-wait")
    if wishes.tcp_be_liberal:
        yield Setting(f"{_NETFILTER}/nf_conntrack_tcp_be_liberal", 1, "--conntrack-tcp-be-liberal=false")
    yield from _seconds("udp_timeout", wishes.udp_timeout, "udp-timeout")
    yield from _seconds("udp_timeout_stream", wishes.udp_stream_timeout, "udp-timeout-stream")


def _seconds(name: str, seconds: float, flag: str) -> Iterator[Setting]:
    if seconds > 0:
        # The kernel knows whole seconds, and none would mean that flows end at once.
        yield Setting(f"{_NETFILTER}/nf_conntrack_{name}", math.ceil(seconds), f"--conntrack-{flag}=0")


def processors(root: Path = Path("/"), otherwise: Callable[[], int | None] = os.cpu_count) -> int:
    """Return how many processors of the machine are online, whatever part of them this process may use."""
    try:
        ranges = [part.split("-") for part in (root / _ONLINE).read_text(encoding="ascii").strip().split(",")]
        return sum(int(numbers[-1]) - int(numbers[0]) + 1 for numbers in ranges)
    except (OSError, ValueError):
        return otherwise() or 1


def set_conntrack(wishes: Wishes, root: Path = Path("/")) -> list[str]:
    """Set what differs from the wishes; return a sentence about each that was.

    The kernel has these files once its conntrack is loaded, as it is by any rule that translates addresses: by
    ``probe``. Raises UnsupportedError at the first that cannot be set; then those after it are as they were. Where
    all are as wished nothing is written, so that it takes no right to write.
    """
    return [
        sentence for setting in settings(wishes, processors(root)) for sentence in _set(root / setting.path, setting)
    ]


def _set(path: Path, setting: Setting) -> Iterator[str]:
    before = "nothing that can be read"
    try:
        before = path.read_text(encoding="ascii").strip()
        if setting.accepts(int(before)):
            return
        path.write_text(str(setting.value), encoding="ascii")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "no number"
        msg = (
            f"could not set conntrack parameters: {path}: {reason}; it is to be {setting.value}, and has {before}: "
            f"let a privileged init container run knft with --init-only, or leave it as it is by {setting.otherwise}"
        )
        raise UnsupportedError(msg) from error
    yield f"{path}: {before} becomes {setting.value}"
