"""The chains of each vintage, the jumps to them, and what takes them away (E.5, E.9, E.10)."""

import shlex
from collections.abc import Iterator

from msgspec import Struct

from knft.model.names import Family
from knft_compat.ipvs.names import (
    FIREWALL,
    IPVS_FILTER,
    IPVS_OUT_FILTER,
    LOAD_BALANCER,
    MARK_DROP,
    NODE_PORT,
    SOURCE_RANGES_FIREWALL,
)
from knft_compat.ipvs.settings import Vintage
from knft_compat.jumps import Jump
from knft_compat.names import FORWARD, MARK_MASQ, POSTROUTING, PROXY_FIREWALL, SERVICES
from knft_compat.rules import PROGRAMS, WAIT


class Chain(Struct, frozen=True):
    """A chain of kube-proxy's."""

    table: str
    name: str


def _of(table: str, *names: str) -> tuple[Chain, ...]:
    return tuple(Chain(table, name) for name in names)


_NAT = _of("nat", SERVICES, POSTROUTING, NODE_PORT, LOAD_BALANCER, MARK_MASQ)
_FILTER_26 = _of("filter", FORWARD, NODE_PORT, PROXY_FIREWALL, SOURCE_RANGES_FIREWALL, IPVS_FILTER)
_FILTER = (*_FILTER_26, *_of("filter", IPVS_OUT_FILTER))

CHAINS = {
    Vintage.V1_23: (
        *_of("nat", SERVICES, POSTROUTING, FIREWALL, NODE_PORT, LOAD_BALANCER, MARK_MASQ),
        *_of("filter", FORWARD, NODE_PORT),
    ),
    Vintage.V1_26: (*_NAT, *_FILTER_26),
    Vintage.V1_29: (*_NAT, *_FILTER),
    Vintage.NEWEST: (*_NAT, *_FILTER),
}
"""The chains that each vintage makes and fills, in order."""

KUBELETS = {Vintage.V1_23: _of("nat", MARK_DROP)}
"""Chains that are made where they are missing, and whose rules are the kubelet's."""

_LEFT_BY_CLEANUP = {
    # The kubelet has a chain of that name too; only later did kube-proxy's cleanup take it for its own.
    Vintage.V1_23: _of("nat", MARK_MASQ),
    Vintage.V1_26: _of("nat", MARK_MASQ),
}

_PORTALS, _HEALTH = "kubernetes service portals", "kubernetes health check rules"
_FENCE, _ACCESS = "kube-proxy firewall rules", "kubernetes ipvs access filter"
_JUMPS_23 = (
    Jump("nat", "OUTPUT", SERVICES, _PORTALS),
    Jump("nat", "PREROUTING", SERVICES, _PORTALS),
    Jump("nat", "POSTROUTING", POSTROUTING, "kubernetes postrouting rules"),
    Jump("filter", "FORWARD", FORWARD, "kubernetes forwarding rules"),
    Jump("filter", "INPUT", NODE_PORT, _HEALTH),
)
_JUMPS_26 = (
    *_JUMPS_23,
    Jump("filter", "INPUT", PROXY_FIREWALL, _FENCE),
    Jump("filter", "FORWARD", PROXY_FIREWALL, _FENCE),
    Jump("filter", "INPUT", IPVS_FILTER, _ACCESS),
)
_JUMPS = (*_JUMPS_26, Jump("filter", "OUTPUT", IPVS_OUT_FILTER, _ACCESS))

JUMPS = {
    Vintage.V1_23: _JUMPS_23,
    Vintage.V1_26: _JUMPS_26,
    Vintage.V1_29: _JUMPS,
    Vintage.NEWEST: _JUMPS,
}
"""Each jump is put in front of those before it."""


class EnsureChains(Struct, frozen=True, tag="chains"):
    """Chains that are made where they are missing."""

    family: Family
    chains: tuple[Chain, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield a command for each."""
        for chain in self.chains:
            yield _command(self.family, "-N", chain)


class RemoveChains(Struct, frozen=True, tag="chains-removed"):
    """Chains that go; all are emptied before the first is deleted, so that none leads to another any more."""

    family: Family
    chains: tuple[Chain, ...]
    tool = ("sh",)

    def text(self) -> Iterator[str]:
        """Yield two commands for each."""
        for action in ("-F", "-X"):
            for chain in self.chains:
                yield _command(self.family, action, chain)


def ensured(vintage: Vintage) -> tuple[Chain, ...]:
    """Return all chains that are made where they are missing."""
    return (*KUBELETS.get(vintage, ()), *CHAINS[vintage])


def removed(vintage: Vintage) -> tuple[Chain, ...]:
    """Return the chains that cleanup deletes."""
    return tuple(chain for chain in CHAINS[vintage] if chain not in _LEFT_BY_CLEANUP.get(vintage, ()))


def _command(family: Family, action: str, chain: Chain) -> str:
    return f"{shlex.join((PROGRAMS[family], *WAIT, action, chain.name, '-t', chain.table))} 2>/dev/null || true"
