"""The sets, chains and rules that count new connections for each frontend (docs/design/service-counters.md).

They exist only with ``--service-counters``. The elements belong to frontends, not to endpoints, so scaling a Service
does not reset them.
"""

from collections.abc import Iterator

from knft.config import Config
from knft.families import Family
from knft.model.plan import Frontend, FrontendKind, ServicePlan
from knft.nft import expressions as nft
from knft.nft.objects import Chain, Container, CountingSet, Key
from knft.render import names
from knft.render.frontends import frontend_key, is_internal

_SERVICE_PORT = (nft.Meta("l4proto"), nft.Payload("th", "dport"))


def counter_containers(family: Family) -> tuple[Container, ...]:
    """Return the declarations of the sets whose elements count connections."""
    address = "ipv4_addr" if family is Family.IPV4 else "ipv6_addr"
    nodeport = "inet_proto . inet_service"
    frontend = f"{address} . {nodeport}"
    return (
        CountingSet(names.CONNECTIONS, frontend, comment="new connections to frontends with an address"),
        CountingSet(names.NODEPORT_CONNECTIONS, nodeport, comment="new connections to NodePorts"),
        CountingSet(names.REJECTED, frontend, comment="rejected connections to frontends with an address"),
        CountingSet(names.NODEPORT_REJECTED, nodeport, comment="rejected connections to NodePorts"),
        CountingSet(names.DROPPED, frontend, comment="dropped connections to frontends with an address"),
        CountingSet(names.NODEPORT_DROPPED, nodeport, comment="dropped connections to NodePorts"),
    )


def counter_members(plan: ServicePlan) -> Iterator[tuple[str, Key]]:
    """Yield the elements that count the connections to a Service port.

    They depend on its Service only, not on its endpoints. Only a policy Local or source ranges cause dropped packets.
    """
    port = plan.port
    for frontend in plan.frontends:
        is_nodeport, key = frontend.address is None, frontend_key(frontend)
        yield names.NODEPORT_CONNECTIONS if is_nodeport else names.CONNECTIONS, key
        yield names.NODEPORT_REJECTED if is_nodeport else names.REJECTED, key
        is_local = port.internal_policy_local if is_internal(frontend) else port.external_policy_local
        has_ranges = frontend.kind is FrontendKind.LOAD_BALANCER_VIP and bool(plan.allowed_sources)
        if is_local or has_ranges:
            yield names.NODEPORT_DROPPED if is_nodeport else names.DROPPED, key


def counting_verdict(verdict: nft.Goto | nft.Drop, frontend: Frontend) -> nft.Goto:
    """Return the verdict that counts a packet and then does what ``verdict`` does."""
    is_nodeport = frontend.address is None
    if isinstance(verdict, nft.Drop):
        return nft.Goto(names.DROPPED_NODEPORTS if is_nodeport else names.DROPPED_SERVICES)
    return nft.Goto(names.REJECTED_NODEPORTS if is_nodeport else names.REJECTED_SERVICES)


def counter_chains(family: Family) -> tuple[Chain, ...]:
    """Return the chains that count rejected and dropped packets. A packet without an element is rejected or dropped."""
    reject, drop = nft.Rule((nft.Reject(),)), nft.Rule((nft.Drop(),))
    return (
        Chain(names.REJECTED_SERVICES, (nft.Rule((_match_frontend(family, names.REJECTED),)), reject)),
        Chain(names.REJECTED_NODEPORTS, (nft.Rule((_match_nodeport(names.NODEPORT_REJECTED),)), reject)),
        Chain(names.DROPPED_SERVICES, (nft.Rule((_match_frontend(family, names.DROPPED),)), drop)),
        Chain(names.DROPPED_NODEPORTS, (nft.Rule((_match_nodeport(names.NODEPORT_DROPPED),)), drop)),
    )


def count_connection(family: Family) -> nft.Rule:
    """Return the rule that counts a new connection to a frontend with an address, and has no other effect."""
    return nft.Rule((_match_frontend(family, names.CONNECTIONS),), "count")


def count_nodeport_connection(conditions: tuple[nft.Statement, ...]) -> nft.Rule:
    """Return the rule that counts a new connection to a NodePort; ``conditions`` match the node's addresses."""
    return nft.Rule((*conditions, _match_nodeport(names.NODEPORT_CONNECTIONS)), "count")


def count_denied_source(conditions: tuple[nft.Statement, ...], family: Family, config: Config) -> tuple[nft.Rule, ...]:
    """Return the rule that counts a packet of a client outside the source ranges, if connections are counted.

    Such a packet is dropped before DNAT, where ``count_connection`` counts the others.
    """
    if not config.service_counters:
        return ()
    counted = (_match_frontend(family, names.CONNECTIONS), _match_frontend(family, names.DROPPED))
    return (nft.Rule((*conditions, *counted), "count"),)


def _match_frontend(family: Family, counters: str) -> nft.Match:
    key = nft.Concat((nft.Payload(family.nft, "daddr"), *_SERVICE_PORT))
    return nft.Match(key, nft.Reference(counters))


def _match_nodeport(counters: str) -> nft.Match:
    return nft.Match(nft.Concat(_SERVICE_PORT), nft.Reference(counters))
