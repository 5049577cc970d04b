"""Config: the settings of syncs and rules, and the parsers of their values (docs/behaviour/configuration.md).

It is a part of ``Settings`` (knft.configuration.settings), which hold all settings of a process.
"""

import re

from msgspec import Struct

from knft.detect_local import DetectLocal
from knft.errors import UsageError
from knft.families import Family
from knft.model import addresses
from knft.protocols import Protocol

PRIMARY, ALL, LOCALHOST = "primary", "all", "localhost"
"""Keywords of ``--nodeport-addresses``: the node's own address; every local address except loopback; loopback."""
LOCALHOST_GATE = "KubeProxyNFTablesLocalhostNodePorts"
"""The feature gate of kube-proxy without which NodePorts are not served on loopback addresses."""
_LOOPBACK_NETWORKS = ("127.0.0.0/8", "::1/128")


class Config(Struct, frozen=True):
    """The settings that rules and syncs depend on. Periods are in seconds; addresses and CIDRs are canonical text.

    ``cluster_cidrs`` are the ranges of all pods of the cluster. ``pod_interface`` is the name of the pods' interface,
    or a prefix of names and ``*``.
    """

    node_name: str
    node_ips: tuple[str, ...] = ()
    detect_local_mode: DetectLocal = "ClusterCIDR"
    cluster_cidrs: tuple[str, ...] = ()
    pod_interface: str = ""
    service_cidrs: tuple[str, ...] = ()
    nodeport_addresses: tuple[str, ...] = (PRIMARY,)
    masquerade_all: bool = False
    masquerade_bit: int = 14
    min_sync_period: float = 0.02
    sync_period: float = 30.0
    max_sync_period: float = 3600.0
    sync_burst: int = 1
    service_counters: bool = False
    """Whether elements of sets count the connections to each Service port."""
    drop_invalid_packets: bool = False
    """Whether forwarded packets are dropped if conntrack finds them INVALID."""
    localhost_nodeports: bool = False
    """Whether NodePorts at loopback addresses are served or rejected (LOCALHOST_GATE)."""

    @property
    def masquerade_mark(self) -> int:
        """The packet mark that requests masquerading."""
        return 1 << self.masquerade_bit

    @property
    def detects_by_interface(self) -> bool:
        """Whether the input interface, and not the source address, identifies packets of local pods."""
        return self.detect_local_mode in ("BridgeInterface", "InterfaceNamePrefix")

    @property
    def lacks_cluster_cidr(self) -> bool:
        """Whether no CIDR identifies the packets of pods, although the mode to detect local traffic needs one."""
        return self.detect_local_mode == "ClusterCIDR" and not self.cluster_cidrs

    def cluster_cidr(self, family: Family) -> str | None:
        """Return the cluster CIDR (the range of all pods) of ``family``, or None if none is configured."""
        return next(iter(addresses.networks_of_family(self.cluster_cidrs, family)), None)

    def configured_pod_cidr(self, family: Family) -> str | None:
        """Return the CIDR that identifies pods of ``family``, if the configuration contains it.

        Returns None in other modes than ClusterCIDR, and if the CIDR includes all addresses.
        """
        cidr = self.cluster_cidr(family) if self.detect_local_mode == "ClusterCIDR" else None
        return None if cidr is None or addresses.is_zero_network(cidr) else cidr

    def nodeport_cidrs(self, family: Family) -> tuple[str, ...]:
        """Return the CIDRs of ``family`` that select NodePort addresses; none if there are only keywords."""
        return addresses.networks_of_family(self.nodeport_addresses, family)

    def nodeports_on_all_addresses(self, family: Family) -> bool:
        """Whether every local address except loopback accepts NodePorts.

        As in kube-proxy, CIDRs of only the other family do not restrict this family. See
        docs/behaviour/configuration.md#node-addresses.
        """
        if ALL in self.nodeport_addresses:
            return True
        cidrs = self.nodeport_cidrs(family)
        if any(addresses.is_zero_network(cidr) for cidr in cidrs):
            return True
        return not cidrs and PRIMARY not in self.nodeport_addresses

    def serves_localhost_nodeports(self, family: Family) -> bool:
        """Whether TCP NodePorts of ``family`` are served on its loopback address.

        As in kube-proxy, only a CIDR within the loopback addresses has this effect, not one that includes others, too.
        """
        cidrs = self.nodeport_cidrs(family) if self.localhost_nodeports else ()
        return any(addresses.is_loopback(cidr.partition("/")[0]) for cidr in cidrs)

    def rejected_localhost_protocols(self, family: Family) -> tuple[Protocol, ...]:
        """Return the protocols whose packets to NodePorts at loopback addresses are rejected.

        As in kube-proxy, these are the protocols that are not served there.
        """
        if not self.localhost_nodeports:
            return ()
        return ("UDP", "SCTP") if self.serves_localhost_nodeports(family) else ("TCP", "UDP", "SCTP")


def parse_one_address_per_family(flag: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return canonical addresses, at most one of each family; raise UsageError naming ``flag``."""
    by_family: dict[Family, str] = {}
    for text in _split(texts):
        _add_one_per_family(flag, by_family, *_address(flag, text))
    return tuple(by_family.values())


def parse_addresses(flag: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return canonical addresses, any number; raise UsageError naming ``flag``."""
    return tuple(_address(flag, text)[1] for text in _split(texts))


def parse_cluster_cidrs(flag: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return canonical CIDRs, at most one of each family; raise UsageError naming ``flag``."""
    by_family: dict[Family, str] = {}
    for text in _split(texts):
        _add_one_per_family(flag, by_family, *_network(flag, text))
    return tuple(by_family.values())


def parse_networks(flag: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return canonical CIDRs, any number; raise UsageError naming ``flag``."""
    return tuple(_network(flag, text)[1] for text in _split(texts))


def parse_service_cidrs(flag: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return canonical CIDRs, any number; raise UsageError naming ``flag``, also if one contains loopback addresses."""
    networks = parse_networks(flag, texts)
    for network in networks:
        if addresses.overlaps_loopback(network):
            msg = (
                f"{flag}: {network} contains loopback addresses, so knft would drop connections to them; give the "
                "range of the cluster IPs, such as 10.96.0.0/12"
            )
            raise UsageError(msg)
    return networks


def parse_nodeport_addresses(
    flag: str, texts: tuple[str, ...], *, localhost_nodeports: bool = False
) -> tuple[str, ...]:
    """Return the keywords and canonical CIDRs of ``--nodeport-addresses``; raise UsageError naming ``flag``.

    ``localhost`` becomes the loopback CIDRs, if ``localhost_nodeports`` (LOCALHOST_GATE) is set.
    """
    words = tuple(_split(texts))
    if LOCALHOST in words and not localhost_nodeports:
        msg = (
            f"{flag}: NodePorts are served on loopback addresses only with the feature gate {LOCALHOST_GATE}; "
            f"set it, or leave out '{LOCALHOST}' and connect to a node address or the cluster IP"
        )
        raise UsageError(msg)
    values: list[str] = []
    for word in words:
        if word == LOCALHOST:
            values += _LOOPBACK_NETWORKS
        else:
            values.append(word if word in (PRIMARY, ALL) else _network(flag, word)[1])
    return tuple(values) or (PRIMARY,)


_INTERFACE = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")


def parse_detect_local(
    mode: DetectLocal,
    bridge: str,
    prefix: str,
    flags: tuple[str, str, str] = ("--detect-local-mode", "--pod-bridge-interface", "--pod-interface-name-prefix"),
) -> str:
    """Return the interface name or prefix for the mode, "" in other modes; raise UsageError naming one of ``flags``."""
    mode_flag, bridge_flag, prefix_flag = flags
    options_by_mode = {"BridgeInterface": (bridge_flag, bridge, ""), "InterfaceNamePrefix": (prefix_flag, prefix, "*")}
    if mode not in options_by_mode:
        return ""
    flag, name, suffix = options_by_mode[mode]
    if not name:
        msg = f"{flag}: it is required with {mode_flag} {mode}"
        raise UsageError(msg)
    # The name becomes part of a rule: only valid names, and no wildcards of nft.
    if not _INTERFACE.fullmatch(name):
        msg = f"{flag}: {name!r} is not the name of an interface (letters, digits and _.@:-, at most 15)"
        raise UsageError(msg)
    return name + suffix


def _split(texts: tuple[str, ...]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _address(flag: str, text: str) -> tuple[Family, str]:
    parsed = addresses.parse_address(text)
    if parsed is None:
        msg = f"{flag}: {text!r} is not an IP address"
        raise UsageError(msg)
    return parsed


def _network(flag: str, text: str) -> tuple[Family, str]:
    parsed = addresses.parse_network(text)
    if parsed is None:
        msg = f"{flag}: {text!r} is not a CIDR such as 10.244.0.0/16 or fd00:10:244::/48"
        raise UsageError(msg)
    return parsed


def _add_one_per_family(flag: str, by_family: dict[Family, str], family: Family, text: str) -> None:
    if by_family.setdefault(family, text) != text:
        msg = f"{flag}: two {family.value} values, {by_family[family]} and {text}; give at most one per family"
        raise UsageError(msg)
