"""The chains of each version, the jumps to them, and their deletion (docs/behaviour/ipvs.md#chains)."""

import shlex
from collections.abc import Iterator

from msgspec import Struct

from knft.families import Family
from knft_compat.ipvs.names import (
    FIREWALL,
    IPVS_FILTER,
    IPVS_OUT_FILTER,
    LOAD_BALANCER_CHAIN,
    MARK_DROP,
    NODE_PORT_CHAIN,
    SOURCE_RANGES_FIREWALL,
)
from knft_compat.ipvs.settings import RuleVersion
from knft_compat.jumps import Jump
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import PROGRAMS, WAIT


class Chain(Struct, frozen=True):
    """A chain of kube-proxy."""

    table: str
    name: str


def _chains(table: str, *names: str) -> tuple[Chain, ...]:
    return tuple(Chain(table, name) for name in names)


_NAT = _chains("nat", SERVICES, POSTROUTING, NODE_PORT_CHAIN, LOAD_BALANCER_CHAIN, MARK_MASQ)
_FILTER_26 = _chains("filter", FORWARD, NODE_PORT_CHAIN, PROXY_FIREWALL, SOURCE_RANGES_FIREWALL, IPVS_FILTER)
_FILTER = (*_FILTER_26, *_chains("filter", IPVS_OUT_FILTER))

CHAINS = {
    RuleVersion.DOCUMENT_003: (
        *_chains("nat", SERVICES, POSTROUTING, FIREWALL, NODE_PORT_CHAIN, LOAD_BALANCER_CHAIN, MARK_MASQ),
        *_chains("filter", FORWARD, NODE_PORT_CHAIN),
    ),
    RuleVersion.DOCUMENT_002: (*_NAT, *_FILTER_26),
    RuleVersion.DOCUMENT_004: (*_NAT, *_FILTER),
    RuleVersion.NEWEST: (*_NAT, *_FILTER),
}
"""The chains that each version creates and fills, in order."""

KUBELET_CHAINS = {RuleVersion.DOCUMENT_003: _chains("nat", MARK_DROP)}
"""Chains of the kubelet that kube-proxy creates if they are missing, without rules."""

_KEPT_BY_CLEANUP = {
    # The kubelet has a chain with this name too; only later versions of kube-proxy's cleanup delete it.
    RuleVersion.DOCUMENT_003: _chains("nat", MARK_MASQ),
    RuleVersion.DOCUMENT_002: _chains("nat", MARK_MASQ),
}

_PORTALS_COMMENT, _HEALTH_CHECK_COMMENT = "kubernetes service portals", "kubernetes health check rules"
_FIREWALL_COMMENT, _FILTER_COMMENT = "kube-proxy firewall rules", "kubernetes ipvs access filter"
_JUMPS_23 = (
    Jump("nat", "OUTPUT", SERVICES, _PORTALS_COMMENT),
    Jump("nat", "PREROUTING", SERVICES, _PORTALS_COMMENT),
    Jump("nat", "POSTROUTING", POSTROUTING, "kubernetes postrouting rules"),
    Jump("filter", "FORWARD", FORWARD, "kubernetes forwarding rules"),
    Jump("filter", "INPUT", NODE_PORT_CHAIN, _HEALTH_CHECK_COMMENT),
)
_JUMPS_26 = (
    *_JUMPS_23,
    Jump("filter", "INPUT", PROXY_FIREWALL, _FIREWALL_COMMENT),
    Jump("filter", "FORWARD", PROXY_FIREWALL, _FIREWALL_COMMENT),
    Jump("filter", "INPUT", IPVS_FILTER, _FILTER_COMMENT),
)
_JUMPS = (*_JUMPS_26, Jump("filter", "OUTPUT", IPVS_OUT_FILTER, _FILTER_COMMENT))

JUMPS = {
    RuleVersion.DOCUMENT_003: _JUMPS_23,
    RuleVersion.DOCUMENT_002: _JUMPS_26,
    RuleVersion.DOCUMENT_004: _JUMPS,
    RuleVersion.NEWEST: _JUMPS,
}
"""Each jump is inserted before the previous ones."""


class EnsureChains(Struct, frozen=True, tag="chains"):
    """Creates chains that are missing."""

    family: Family
    chains: tuple[Chain, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield one command for each chain."""
        for chain in self.chains:
            yield _command(self.family, "-N", chain)


class RemoveChains(Struct, frozen=True, tag="chains-removed"):
    """Deletes chains; flushes all before deleting the first, since a chain with a jump to it cannot be deleted."""

    family: Family
    chains: tuple[Chain, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield two commands for each chain."""
        for action in ("-F", "-X"):
            for chain in self.chains:
                yield _command(self.family, action, chain)


def chains_to_create(version: RuleVersion) -> tuple[Chain, ...]:
    """Return the chains that a sync creates if they are missing."""
    return (*KUBELET_CHAINS.get(version, ()), *CHAINS[version])


def chains_to_delete(version: RuleVersion) -> tuple[Chain, ...]:
    """Return the chains that a cleanup deletes."""
    return tuple(chain for chain in CHAINS[version] if chain not in _KEPT_BY_CLEANUP.get(version, ()))


def _command(family: Family, action: str, chain: Chain) -> str:
    return f"{shlex.join((PROGRAMS[family], *WAIT, action, chain.name, '-t', chain.table))} 2>/dev/null || true"
