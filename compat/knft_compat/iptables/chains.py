"""The rules in the chains of a Service port in the nat table (docs/behaviour/iptables.md#service-ports)."""

from collections.abc import Iterator

from knft.model import addresses
from knft.model.endpoint import Endpoint
from knft_compat.iptables.port import RenderedPort
from knft_compat.iptables.render_context import RenderContext
from knft_compat.names import MARK_MASQ
from knft_compat.rules import Rule, comment

_FROM_NODE_MATCH = ("-m", "addrtype", "--src-type", "LOCAL")


def chain_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    """Yield the rules in kube-proxy's order, which differs from the order of the chains."""
    if port.has_internal_endpoints:
        yield from _internal_masquerade_rules(port, context)
    if port.has_external_chain:
        yield from _external_chain_rules(port, context)
    if port.has_firewall_chain:
        yield from _firewall_chain_rules(port, context)
    for chain, endpoints in port.policy_chains:
        yield from _load_balancing_rules(port, context, chain, endpoints)
    for endpoint in port.endpoints.all_reachable:
        yield from _endpoint_chain_rules(port, context, endpoint)


def _internal_masquerade_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    match = (*comment(f"{port.name} cluster IP"), *port.match_address(port.port.cluster_ip))
    if context.masquerade.masquerade_all:
        yield Rule(port.internal_chain, (*match, "-j", MARK_MASQ))
    elif context.local_traffic_match is not None:
        yield Rule(port.internal_chain, (*match, *context.local_traffic_match.if_not_local, "-j", MARK_MASQ))


def _external_chain_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    chain = port.chains.external
    if port.port.external_policy_local:
        yield from _local_source_rules(port, context)
    else:
        label = comment(f"masquerade traffic for {port.name} external destinations")
        yield Rule(chain, (*label, "-j", MARK_MASQ))
    if port.has_external_endpoints:
        yield Rule(chain, ("-j", port.external_chain))


def _local_source_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    """Yield the rules that let local pods and the node reach all endpoints, despite policy Local."""
    chain, jump = port.chains.external, ("-j", port.chains.cluster)
    if context.local_traffic_match is not None:
        label = comment(f"pod traffic for {port.name} external destinations")
        yield Rule(chain, (*label, *context.local_traffic_match.if_local, *jump))
    label = comment(f"masquerade LOCAL traffic for {port.name} external destinations")
    yield Rule(chain, (*label, *_FROM_NODE_MATCH, "-j", MARK_MASQ))
    label = comment(f"route LOCAL traffic for {port.name} external destinations")
    yield Rule(chain, (*label, *_FROM_NODE_MATCH, *jump))


def _firewall_chain_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    chain, ranges = port.chains.firewall, port.port.load_balancer_source_ranges
    # If the VIP is routed to the node itself, its packets to the VIP have the VIP as their source.
    node_is_allowed = any(addresses.contains(cidr, context.node_ip) for cidr in ranges)
    for source in (*ranges, *(port.port.load_balancer_vips if node_is_allowed else ())):
        label = comment(f"{port.name} loadbalancer IP")
        yield Rule(chain, (*label, "-s", source, "-j", port.chains.external))
    yield Rule(chain, comment(f"other traffic to {port.name} will be dropped by KUBE-PROXY-FIREWALL"))


def _load_balancing_rules(
    port: RenderedPort, context: RenderContext, chain: str, endpoints: tuple[Endpoint, ...]
) -> Iterator[Rule]:
    """Yield the rules that send remembered clients to their endpoint, and others to a random endpoint."""
    if port.port.affinity_seconds:
        for endpoint in endpoints:
            target = port.endpoint_chain(endpoint)
            recent_match = ("-m", "recent", "--name", target, "--rcheck", "--seconds", str(port.port.affinity_seconds))
            yield Rule(chain, (*_endpoint_comment(port, context, endpoint), *recent_match, "--reap", "-j", target))
    for remaining, endpoint in zip(range(len(endpoints), 0, -1), endpoints, strict=True):
        random_match = (
            ("-m", "statistic", "--mode", "random", "--probability", f"{1 / remaining:.10f}") if remaining > 1 else ()
        )
        yield Rule(
            chain, (*_endpoint_comment(port, context, endpoint), *random_match, "-j", port.endpoint_chain(endpoint))
        )


def _endpoint_comment(port: RenderedPort, context: RenderContext, endpoint: Endpoint) -> tuple[str, ...]:
    return () if context.is_large_cluster else comment(f"{port.name} -> {endpoint.key}")


def _endpoint_chain_rules(port: RenderedPort, context: RenderContext, endpoint: Endpoint) -> Iterator[Rule]:
    chain = port.endpoint_chain(endpoint)
    label = () if context.is_large_cluster else comment(str(port.name))
    # Masquerade hairpin traffic: an endpoint that connects to its own Service would reply to itself directly.
    yield Rule(chain, (*label, "-s", endpoint.address, "-j", MARK_MASQ))
    remember_client = ("-m", "recent", "--name", chain, "--set") if port.port.affinity_seconds else ()
    yield Rule(chain, (*label, *remember_client, *port.protocol_match, "-j", "DNAT", "--to-destination", endpoint.key))
