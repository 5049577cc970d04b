"""The rules in a Service port's own chains of the nat table (D.5, 8 to 12)."""

from collections.abc import Iterator

from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft_compat.iptables.port import Port
from knft_compat.iptables.terms import Terms
from knft_compat.names import MARK_MASQ
from knft_compat.rules import Rule, comment

_FROM_NODE = ("-m", "addrtype", "--src-type", "LOCAL")


def own_rules(port: Port, terms: Terms) -> Iterator[Rule]:
    """Yield them in kube-proxy's order, which is not that of the chains."""
    if port.serves_internal:
        yield from _masquerade_internal(port, terms)
    if port.has_external:
        yield from _external(port, terms)
    if port.has_firewall:
        yield from _firewall(port, terms)
    for chain, endpoints in port.policies:
        yield from _balance(port, terms, chain, endpoints)
    for endpoint in port.endpoints.all_reachable:
        yield from _endpoint(port, terms, endpoint)


def _masquerade_internal(port: Port, terms: Terms) -> Iterator[Rule]:
    match = (*comment(f"{port.name} cluster IP"), *port.at(port.asked.cluster_ip))
    if terms.masquerade.everything:
        yield Rule(port.internal_chain, (*match, "-j", MARK_MASQ))
    elif terms.local_traffic is not None:
        yield Rule(port.internal_chain, (*match, *terms.local_traffic.is_not_local, "-j", MARK_MASQ))


def _external(port: Port, terms: Terms) -> Iterator[Rule]:
    chain = port.chains.external
    if port.asked.external_policy_local:
        yield from _short_cuts(port, terms)
    else:
        said = comment(f"masquerade traffic for {port.name} external destinations")
        yield Rule(chain, (*said, "-j", MARK_MASQ))
    if port.serves_external:
        yield Rule(chain, ("-j", port.external_chain))


def _short_cuts(port: Port, terms: Terms) -> Iterator[Rule]:
    """Lead this node's pods and the node itself to all endpoints, as if their packets had come back from outside."""
    chain, jump = port.chains.external, ("-j", port.chains.cluster)
    if terms.local_traffic is not None:
        said = comment(f"pod traffic for {port.name} external destinations")
        yield Rule(chain, (*said, *terms.local_traffic.is_local, *jump))
    said = comment(f"masquerade LOCAL traffic for {port.name} external destinations")
    yield Rule(chain, (*said, *_FROM_NODE, "-j", MARK_MASQ))
    said = comment(f"route LOCAL traffic for {port.name} external destinations")
    yield Rule(chain, (*said, *_FROM_NODE, *jump))


def _firewall(port: Port, terms: Terms) -> Iterator[Rule]:
    chain, ranges = port.chains.firewall, port.asked.load_balancer_source_ranges
    # A node that dials a VIP that is routed to itself has that VIP as its source.
    from_node = any(addresses.contains(cidr, terms.node_ip) for cidr in ranges)
    for source in (*ranges, *(port.asked.load_balancer_vips if from_node else ())):
        said = comment(f"{port.name} loadbalancer IP")
        yield Rule(chain, (*said, "-s", source, "-j", port.chains.external))
    yield Rule(chain, comment(f"other traffic to {port.name} will be dropped by KUBE-PROXY-FIREWALL"))


def _balance(port: Port, terms: Terms, chain: str, endpoints: tuple[Endpoint, ...]) -> Iterator[Rule]:
    """Lead clients to the endpoint that they had, and others to any, all with the same chance."""
    if port.asked.affinity_seconds:
        for endpoint in endpoints:
            target = port.endpoint_chain(endpoint)
            seen = ("-m", "recent", "--name", target, "--rcheck", "--seconds", str(port.asked.affinity_seconds))
            yield Rule(chain, (*_says_endpoint(port, terms, endpoint), *seen, "--reap", "-j", target))
    for left, endpoint in zip(range(len(endpoints), 0, -1), endpoints, strict=True):
        chance = ("-m", "statistic", "--mode", "random", "--probability", f"{1 / left:.10f}") if left > 1 else ()
        yield Rule(chain, (*_says_endpoint(port, terms, endpoint), *chance, "-j", port.endpoint_chain(endpoint)))


def _says_endpoint(port: Port, terms: Terms, endpoint: Endpoint) -> tuple[str, ...]:
    return () if terms.is_large else comment(f"{port.name} -> {endpoint.key}")


def _endpoint(port: Port, terms: Terms, endpoint: Endpoint) -> Iterator[Rule]:
    chain = port.endpoint_chain(endpoint)
    said = () if terms.is_large else comment(str(port.name))
    # An endpoint that dials its own Service would answer itself directly.
    yield Rule(chain, (*said, "-s", endpoint.address, "-j", MARK_MASQ))
    remember = ("-m", "recent", "--name", chain, "--set") if port.asked.affinity_seconds else ()
    yield Rule(chain, (*said, *remember, *port.protocol, "-j", "DNAT", "--to-destination", endpoint.key))
