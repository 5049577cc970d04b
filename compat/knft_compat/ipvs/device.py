"""The dummy device kube-ipvs0 and its addresses (docs/behaviour/ipvs.md#sync-order)."""

from collections.abc import Iterator

from msgspec import Struct

from knft.leftovers.names import DEVICE, DEVICE_KIND

_BATCH = ("ip", "-force", "-batch", "-")


class EnsureDevice(Struct, frozen=True, tag="device"):
    """Creates the device if it is missing; the device stays down."""

    name: str = DEVICE
    kind: str = DEVICE_KIND
    tool = ("sh",)
    programs = ("ip",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield f"ip link show {self.name} >/dev/null 2>&1 || ip link add {self.name} type {self.kind}"


class BindAddresses(Struct, frozen=True, tag="addresses"):
    """Adds addresses to the device, as networks of one address each.

    kube-proxy adds an address right after it has created the virtual server; the result is the same.
    """

    networks: tuple[str, ...]
    device: str = DEVICE
    tool = _BATCH

    def text(self) -> Iterator[str]:
        """Yield one line for each network; ip continues if an address exists already."""
        for network in self.networks:
            yield f"address add {network} dev {self.device}"


class UnbindAddresses(Struct, frozen=True, tag="addresses-stale"):
    """Removes addresses from the device, as networks of one address each."""

    networks: tuple[str, ...]
    device: str = DEVICE
    tool = _BATCH

    def text(self) -> Iterator[str]:
        """Yield one line for each network."""
        for network in self.networks:
            yield f"address del {network} dev {self.device}"


class RemoveDevice(Struct, frozen=True, tag="device-removed"):
    """Deletes the device, with its addresses."""

    name: str = DEVICE
    kind: str = DEVICE_KIND
    tool = ("sh",)
    programs = ("ip",)

    def text(self) -> Iterator[str]:
        """Yield the command."""
        yield f"! ip link show {self.name} >/dev/null 2>&1 || ip link delete {self.name} type {self.kind}"
