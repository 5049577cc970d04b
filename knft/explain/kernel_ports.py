"""Explains Service ports from knft's rules alone: frontends, endpoints and affinity, without reasons."""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from msgspec import Struct

from knft.explain.explanation import ExplainedEndpoint, ExplainedFrontend, ExplainedPort
from knft.explain.frontend_index import FrontendIndex, frontend_text
from knft.explain.outcomes import Probes
from knft.explain.sentences import Sentence, Statement, state
from knft.families import FAMILY_OF_VERSION, Family
from knft.interpret.compare.formatting import format_address
from knft.interpret.rules import Element, Verdict
from knft.model.annotations import MAGLEV, RANDOM, SOURCE_HASH
from knft.model.endpoint import endpoint_key
from knft.model.names import ServicePortName
from knft.model.plan import FrontendKey
from knft.protocols import NFT_PROTOCOLS, PROTOCOL_NAMES

_ENDPOINT_MAP = re.compile(r"(wide-|hashed-)?(?:local-)?(nodeport-)?endpoints-(tcp|udp|sctp)(?:-\d+)?")
"""The names of the maps of endpoints (knft.render.pools, knft.render.wide and knft.render.hashing)."""
_NUMBERS_MAP = re.compile(r"hashed-(nodeport-)?numbers-(tcp|udp|sctp)")
"""The names of the maps with the numbers of Service ports whose clients are hashed (knft.render.hashing)."""
_HASHING_CHAIN = re.compile(rf"\b({MAGLEV}|{SOURCE_HASH})-(?:tcp|udp|sctp)-\d")
"""The part of the names of chains with consistent hashing (knft.render.pools)."""
_WIDE_CHAIN = re.compile(r"wide-(\d+)-.*")


class KernelFamilyView(Struct, frozen=True):
    """One family: the rules, and their frontends. ``nodeport_address`` accepts NodePorts, "" if none does."""

    index: FrontendIndex
    probes: Probes
    nodeport_address: str

    @property
    def family(self) -> Family:
        """The IP family."""
        return FAMILY_OF_VERSION[self.probes.rules.version]


def explain_kernel_port(
    view: KernelFamilyView, name: ServicePortName, address: str = "", port: int = 0
) -> ExplainedPort:
    """Explain one Service port; list only endpoints with ``address`` and ``port``, if these are given."""
    frontends = tuple(_frontend(view, key, name) for key in view.index.owned_by(name))
    outcomes = [outcome for frontend in frontends for outcome in frontend.outcomes]
    endpoints = sorted({endpoint for outcome in outcomes for endpoint in outcome.endpoints})
    wanted = {each for each in endpoints if _is_at(each, address, port)} if address else set(endpoints)
    conclusion = _conclusion(name, view.family, endpoints)
    seconds = {outcome.affinity_seconds for outcome in outcomes} - {None}
    return ExplainedPort(
        port=str(name),
        protocol=name.protocol,
        family=view.family.value,
        conclusion=conclusion,
        problems=() if endpoints else (conclusion,),
        frontends=frontends,
        endpoints=tuple(
            ExplainedEndpoint(each, "", "", "", "", is_used=True, uses=()) for each in endpoints if each in wanted
        ),
        other_endpoints=len(endpoints) - len(wanted),
        internal_traffic_policy="",
        external_traffic_policy="",
        load_balancing=_load_balancing(view, name) if endpoints else "",
        affinity_seconds=max((value for value in seconds if value is not None), default=None),
        source_ranges=(),
        notes=tuple(view.probes.notes()),
    )


def _conclusion(name: ServicePortName, family: Family, endpoints: list[str]) -> Statement:
    if not endpoints:
        return state(Sentence.KERNEL_UNSERVED, port=name, family=family.value)
    return state(Sentence.KERNEL_SERVED, port=name, family=family.value, count=len(endpoints))


def _load_balancing(view: KernelFamilyView, name: ServicePortName) -> str:
    """Return how an endpoint is chosen, by the names of the chains that the frontends lead to."""
    names = (each for key in view.index.owned_by(name) for each in _chains_of(view, view.index.chains.get(key, "")))
    found = next(filter(None, map(_HASHING_CHAIN.search, names)), None)
    return found[1] if found is not None else RANDOM


def _chains_of(view: KernelFamilyView, chain: str) -> Iterator[str]:
    """Yield a chain and those that its rules lead to: a chain of a wide Service port leads to a shared one."""
    yield chain
    for rule in view.probes.rules.chains[chain].rules if chain in view.probes.rules.chains else ():
        yield from (step.chain for step in rule.steps if isinstance(step, Verdict))


def _frontend(view: KernelFamilyView, key: FrontendKey, name: ServicePortName) -> ExplainedFrontend:
    at = view.nodeport_address if key[0] is None else key[0]
    outcomes = view.probes.outcomes(at, key[2], key[1]) if at else ()
    return ExplainedFrontend(
        frontend_text(key), view.index.kinds[key, name], key[2], is_owned=True, claims=(), at=at, outcomes=outcomes
    )


def _is_at(endpoint: str, address: str, port: int) -> bool:
    if port:
        return endpoint == endpoint_key(address, port)
    return endpoint.startswith(endpoint_key(address, 0)[:-1])


def kernel_ports_with_endpoint(view: KernelFamilyView, address: str, port: int) -> tuple[ServicePortName, ...]:
    """Return the Service ports that send connections to an endpoint, by the maps of endpoints."""
    return tuple(sorted({view.index.owners[key] for key in _frontends_with(view, int(ip_address(address)), port)}))


def _frontends_with(view: KernelFamilyView, address: int, port: int) -> Iterator[FrontendKey]:
    """Yield the frontends whose endpoints have an address, and a port unless that is 0."""
    wide = _wide_frontends(view) | _hashed_frontends(view)
    for name, collection in view.probes.rules.collections.items():
        found = _ENDPOINT_MAP.fullmatch(name.rpartition(" ")[2])
        if found is None:
            continue
        for element in collection.elements:
            if isinstance(element.value, tuple) and element.value[0] == address and port in (0, element.value[-1]):
                keys = wide.get(element.key[0], ()) if found[1] else (_frontend_key(view, element, found[2], found[3]),)
                yield from (key for key in keys if key in view.index.owners)


def _frontend_key(view: KernelFamilyView, element: Element, nodeport: str | None, nft_protocol: str) -> FrontendKey:
    protocol = next(each for each, name in NFT_PROTOCOLS.items() if name == nft_protocol)
    first, second = element.key[0], element.key[1]
    if nodeport or not isinstance(first, int):
        return (None, protocol, first if isinstance(first, int) else 0)
    return (format_address(view.probes.rules.version, first), protocol, second if isinstance(second, int) else 0)


def _wide_frontends(view: KernelFamilyView) -> dict[int | tuple[int, int], list[FrontendKey]]:
    """Return the frontends of each wide Service port, by its number."""
    wide: dict[int | tuple[int, int], list[FrontendKey]] = {}
    for name, collection in view.probes.rules.collections.items():
        if name.rpartition(" ")[2] not in ("service-ips", "service-nodeports"):
            continue
        for element in collection.elements:
            chain = element.value.chain if isinstance(element.value, Verdict) else ""
            found = _WIDE_CHAIN.fullmatch(chain.rpartition(" ")[2])
            if found is not None:
                wide.setdefault(int(found[1]), []).append(_verdict_key(view, element))
    return wide


def _hashed_frontends(view: KernelFamilyView) -> dict[int | tuple[int, int], list[FrontendKey]]:
    """Return the frontends of each Service port whose clients are hashed, by its number."""
    hashed: dict[int | tuple[int, int], list[FrontendKey]] = {}
    for name, collection in view.probes.rules.collections.items():
        found = _NUMBERS_MAP.fullmatch(name.rpartition(" ")[2])
        for element in collection.elements if found is not None else ():
            if found is not None and isinstance(element.value, tuple):
                hashed.setdefault(element.value[0], []).append(_frontend_key(view, element, found[1], found[2]))
    return hashed


def _verdict_key(view: KernelFamilyView, element: Element) -> FrontendKey:
    """Return the frontend of an element of a verdict map: address (none for NodePorts), protocol and port."""
    *address, protocol, port = (part if isinstance(part, int) else 0 for part in element.key)
    where = format_address(view.probes.rules.version, address[0]) if address else None
    spelled = next(each for each, name in NFT_PROTOCOLS.items() if name == PROTOCOL_NAMES.get(protocol))
    return (where, spelled, port)
