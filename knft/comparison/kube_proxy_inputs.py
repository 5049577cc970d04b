"""The inputs of a sync of kube-proxy, made from objects and settings."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from knft.config import Config, parse_networks
from knft.errors import UsageError
from knft.families import Family
from knft.model import addresses, objects
from knft.model.names import NamespacedName
from knft.model.objects import ObjectChange
from knft.sync.assemble import states_after_batches
from knft.sync.state import ServiceState
from knft_compat import iptables, ipvs, nftables
from knft_compat.sync_input import LOOPBACK_NETWORKS, LocalTrafficMatch, Masquerade, Node, PlannedPort, SyncInput

_ANY_NETWORKS = ("0.0.0.0/0", "::/0")
_MAX_INTERFACE_NAME = 15


class KubeProxyOptions(Struct, frozen=True):
    """The configuration that kube-proxy's rules depend on, in addition to the objects.

    ``nodeport_addresses`` holds the values of --nodeport-addresses, ``local_addresses`` the node's addresses that the
    Node object does not have. ``settings`` are those of one mode.
    """

    config: Config
    settings: iptables.Settings | ipvs.Settings | nftables.Settings
    nodeport_addresses: tuple[str, ...] = ()
    local_addresses: tuple[str, ...] = ()
    random_fully: bool = True


class ObjectSnapshots(NamedTuple):
    """The objects of this sync, and those of the sync before it, None for the first sync."""

    current: tuple[ObjectChange, ...]
    previous: tuple[ObjectChange, ...] | None

    @property
    def services(self) -> frozenset[NamespacedName]:
        """The names of all Services of both syncs."""
        listed = (change.current for change in (*self.current, *(self.previous or ())))
        return frozenset(item.key for item in listed if isinstance(item, objects.Service))


def sync_inputs(snapshots: ObjectSnapshots, options: KubeProxyOptions) -> Iterator[tuple[Family, SyncInput]]:
    """Yield the input of each family's sync; raise UsageError naming a flag."""
    config = options.config
    states = _states(config, snapshots.current)
    previous_states = None if snapshots.previous is None else _states(config, snapshots.previous)
    host_addresses = (*interface_addresses(snapshots.current, config), *options.local_addresses)
    for family, state in states.items():
        previous = None if previous_states is None else previous_states[family]
        node_ip = state.node.node_ip
        cidrs = _nodeport_cidrs(family, options.nodeport_addresses, node_ip)
        yield (
            family,
            SyncInput(
                node=Node(family, node_ip, _non_loopback(family, host_addresses), cidrs),
                ports=_planned_ports(state),
                previous_ports=None if previous is None else _planned_ports(previous),
                zone_changed=previous is not None and previous.node.zone != state.node.zone,
                local_traffic_match=_local_traffic(config, state.node.pod_cidr),
                masquerade=Masquerade(config.masquerade_all, config.masquerade_mark, options.random_fully),
                service_cidrs=state.node.service_cidrs,
            ),
        )


def interface_addresses(changes: tuple[ObjectChange, ...], config: Config) -> tuple[str, ...]:
    """Return the canonical addresses of the node's interfaces, without any other texts in the Node object.

    An ExternalIP is not included, because often a router has it.
    """
    nodes = (change.current for change in changes if isinstance(change.current, objects.Node))
    status = (node.status for node in nodes if node.metadata.name == config.node_name)
    listed = (item for found in status if found is not None for item in found.addresses or ())
    parsed = (addresses.parse_address(item.address) for item in listed if item.type == "InternalIP")
    return (*config.node_ips, *(found[1] for found in parsed if found is not None))


def _states(config: Config, changes: tuple[ObjectChange, ...]) -> dict[Family, ServiceState]:
    (states,) = states_after_batches(config, changes)
    return states


def _planned_ports(state: ServiceState) -> tuple[PlannedPort, ...]:
    plans = ((name, state.plan(name)) for name in sorted(state.service_ports()))
    return tuple(PlannedPort(plan, state.endpoints(name)) for name, plan in plans if plan is not None)


def _local_traffic(config: Config, pod_cidr: str | None) -> LocalTrafficMatch | None:
    """Return the iptables matches of pods' traffic, or None if it cannot be recognised.

    See docs/behaviour/configuration.md#local-traffic.
    """
    if config.detects_by_interface:
        match = ("-i", re.sub(r"\*$", "+", config.pod_interface))
        if len(match[1]) > _MAX_INTERFACE_NAME:
            limit = _MAX_INTERFACE_NAME - 1
            msg = (
                f"--pod-interface-name-prefix: {config.pod_interface[:-1]!r} is longer than {limit} characters, "
                "the limit of iptables"
            )
            raise UsageError(msg)
    elif pod_cidr is not None:
        match = ("-s", pod_cidr)
    else:
        return None
    return LocalTrafficMatch(match, ("!", *match))


def _nodeport_cidrs(family: Family, texts: tuple[str, ...], node_ip: str | None) -> tuple[str, ...]:
    """Return the networks of ``family`` whose local addresses accept NodePorts, () if all local addresses do.

    See docs/behaviour/configuration.md#node-addresses. Raise UsageError.
    """
    primary = () if node_ip is None or addresses.is_loopback(node_ip) else (addresses.as_network(node_ip),)
    words = {"primary": primary, "localhost": tuple(LOOPBACK_NETWORKS.values()), "all": _ANY_NETWORKS}
    flag = "--nodeport-addresses"
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    found = [cidr for part in parts for cidr in (words[part] if part in words else parse_networks(flag, (part,)))]
    cidrs = addresses.networks_of_family(found, family)
    return () if any(addresses.is_zero_network(cidr) for cidr in cidrs) else cidrs


def _non_loopback(family: Family, texts: tuple[str, ...]) -> tuple[str, ...]:
    found = set(addresses.of_family(texts, family))
    return tuple(sorted(address for address in found if not addresses.is_loopback(address)))
