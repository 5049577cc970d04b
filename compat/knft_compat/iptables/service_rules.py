"""The rules that match a Service port's frontends, in chains that all Service ports share.

See docs/behaviour/iptables.md#service-ports.
"""

from collections.abc import Iterator

from knft.families import Family
from knft.model.plan import TrafficAction
from knft_compat.iptables.names import EXTERNAL_SERVICES, NODE_PORTS
from knft_compat.iptables.port import RenderedPort
from knft_compat.iptables.render_context import RenderContext
from knft_compat.names import PROXY_FIREWALL, SERVICES
from knft_compat.rules import Rule, comment
from knft_compat.sync_input import LOOPBACK_NETWORKS

LOCALHOST_NODE_PORTS_COUNTER = "localhost_nps_accepted_pkts"
"""The nfacct counter of NodePort connections to loopback addresses."""

_REFUSAL_BY_ACTION = {
    TrafficAction.REJECT: ("has no endpoints", "REJECT"),
    TrafficAction.DROP: ("has no local endpoints", "DROP"),
}


def nat_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    """Yield the rules that jump from frontends to the Service port's chains."""
    service_port, external = port.port, port.chains.external
    if port.has_internal_endpoints:
        yield _frontend_rule(port, "cluster IP", service_port.cluster_ip, port.internal_chain)
    if not port.endpoints.has_any_endpoints:
        return
    for address in service_port.external_ips:
        yield _frontend_rule(port, "external IP", address, external)
    for address in service_port.load_balancer_vips:
        yield _frontend_rule(port, "loadbalancer IP", address, port.load_balancer_chain)
    if service_port.node_port:
        yield from _node_port_rules(port, context)


def _frontend_rule(port: RenderedPort, frontend_kind: str, address: str, chain: str) -> Rule:
    return Rule(SERVICES, (*comment(f"{port.name} {frontend_kind}"), *port.match_address(address), "-j", chain))


def _node_port_rules(port: RenderedPort, context: RenderContext) -> Iterator[Rule]:
    match = (*comment(str(port.name)), *port.protocol_match)
    number = ("--dport", str(port.port.node_port))
    jump = ("-j", port.chains.external)
    if context.localhost_node_ports and context.has_nfacct:
        counted = ("-m", "nfacct", "--nfacct-name", LOCALHOST_NODE_PORTS_COUNTER)
        yield Rule(NODE_PORTS, (*match, "-d", LOOPBACK_NETWORKS[Family.IPV4], *number, *counted, *jump))
    yield Rule(NODE_PORTS, (*match, *number, *jump))


def filter_rules(port: RenderedPort) -> Iterator[Rule]:
    """Yield the rules that refuse traffic without endpoints, and those that accept health checks."""
    service_port = port.port
    if not port.has_internal_endpoints:
        yield Rule(SERVICES, _refusal_arguments(port, port.internal, port.match_address(service_port.cluster_ip)))
    for address in () if port.has_external_endpoints else service_port.external_ips:
        yield Rule(EXTERNAL_SERVICES, _refusal_arguments(port, port.external, port.match_address(address)))
    for address in service_port.load_balancer_vips if port.has_firewall_chain else ():
        label = comment(f"{port.name} traffic not accepted by {port.chains.firewall}")
        yield Rule(PROXY_FIREWALL, (*label, *port.match_address(address), "-j", "DROP"))
    for address in () if port.has_external_endpoints else service_port.load_balancer_vips:
        yield Rule(EXTERNAL_SERVICES, _refusal_arguments(port, port.external, port.match_address(address)))
    if service_port.node_port and not port.has_external_endpoints:
        local_match = (
            "-m",
            "addrtype",
            "--dst-type",
            "LOCAL",
            *port.protocol_match,
            "--dport",
            str(service_port.node_port),
        )
        yield Rule(EXTERNAL_SERVICES, _refusal_arguments(port, port.external, local_match))
    if service_port.health_check_node_port:
        label = comment(f"{port.name} health check node port")
        number = ("--dport", str(service_port.health_check_node_port))
        yield Rule(NODE_PORTS, (*label, "-m", "tcp", "-p", "tcp", *number, "-j", "ACCEPT"))


def _refusal_arguments(port: RenderedPort, traffic: TrafficAction, match: tuple[str, ...]) -> tuple[str, ...]:
    reason, target = _REFUSAL_BY_ACTION[traffic]
    return (*comment(f"{port.name} {reason}"), *match, "-j", target)
