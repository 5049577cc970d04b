"""kube-proxy's dummy device and the addresses on it (E.4)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.takeover.names import DEVICE, DEVICE_KIND

_BATCH = ("ip", "-force", "-batch", "-")


class EnsureDevice(Struct, frozen=True, tag="device"):
    """The device is made where it is missing, and never set up."""

    name: str = DEVICE
    kind: str = DEVICE_KIND
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield f"ip link show {self.name} >/dev/null 2>&1 || ip link add {self.name} type {self.kind}"


class BindAddresses(Struct, frozen=True, tag="addresses"):
    """Networks of one address each that the device gets.

    kube-proxy binds an address as soon as it has made the virtual server; the end of the sync is the same.
    """

    networks: tuple[str, ...]
    device: str = DEVICE
    tool = _BATCH

    def text(self) -> Iterator[str]:
        """Yield a line for each; what is there already is no reason to stop."""
        for network in self.networks:
            yield f"address add {network} dev {self.device}"


class UnbindAddresses(Struct, frozen=True, tag="addresses-stale"):
    """Networks of one address each that the device loses."""

    networks: tuple[str, ...]
    device: str = DEVICE
    tool = _BATCH

    def text(self) -> Iterator[str]:
        """Yield a line for each."""
        for network in self.networks:
            yield f"address del {network} dev {self.device}"


class RemoveDevice(Struct, frozen=True, tag="device-removed"):
    """The device goes, and its addresses with it."""

    name: str = DEVICE
    kind: str = DEVICE_KIND
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield f"! ip link show {self.name} >/dev/null 2>&1 || ip link delete {self.name} type {self.kind}"
