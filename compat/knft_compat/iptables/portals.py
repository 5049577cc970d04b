"""The rules that catch a Service port's frontends, in chains that all Service ports share (D.5, 1 to 6)."""

from collections.abc import Iterator

from knft.model.names import Family
from knft.model.plan import Traffic
from knft_compat.cluster import LOOPBACK_NETWORKS
from knft_compat.iptables.names import EXTERNAL_SERVICES, NODE_PORTS
from knft_compat.iptables.port import Port
from knft_compat.iptables.terms import Terms
from knft_compat.names import PROXY_FIREWALL, SERVICES
from knft_compat.rules import Rule, comment

COUNT_LOCALHOST = "localhost_nps_accepted_pkts"
"""The counter of NodePort connections to loopback addresses."""

_REFUSALS = {Traffic.REJECT: ("has no endpoints", "REJECT"), Traffic.DROP: ("has no local endpoints", "DROP")}


def nat_portals(port: Port, terms: Terms) -> Iterator[Rule]:
    """Yield the rules that lead from frontends to the Service port's chains."""
    asked, external = port.asked, port.chains.external
    if port.serves_internal:
        yield _portal(port, "cluster IP", asked.cluster_ip, port.internal_chain)
    if not port.endpoints.has_any:
        return
    for address in asked.external_ips:
        yield _portal(port, "external IP", address, external)
    for address in asked.load_balancer_vips:
        yield _portal(port, "loadbalancer IP", address, port.load_balancer_chain)
    if asked.node_port:
        yield from _node_port(port, terms)


def _portal(port: Port, what: str, address: str, chain: str) -> Rule:
    return Rule(SERVICES, (*comment(f"{port.name} {what}"), *port.at(address), "-j", chain))


def _node_port(port: Port, terms: Terms) -> Iterator[Rule]:
    said = (*comment(str(port.name)), *port.protocol)
    number = ("--dport", str(port.asked.node_port))
    jump = ("-j", port.chains.external)
    if terms.localhost and terms.has_nfacct:
        counted = ("-m", "nfacct", "--nfacct-name", COUNT_LOCALHOST)
        yield Rule(NODE_PORTS, (*said, "-d", LOOPBACK_NETWORKS[Family.IPV4], *number, *counted, *jump))
    yield Rule(NODE_PORTS, (*said, *number, *jump))


def filter_portals(port: Port) -> Iterator[Rule]:
    """Yield the rules that refuse what no endpoint answers, and those that let health checks in."""
    asked = port.asked
    if not port.serves_internal:
        yield Rule(SERVICES, _refusal(port, port.internal, port.at(asked.cluster_ip)))
    for address in () if port.serves_external else asked.external_ips:
        yield Rule(EXTERNAL_SERVICES, _refusal(port, port.external, port.at(address)))
    for address in asked.load_balancer_vips if port.has_firewall else ():
        said = comment(f"{port.name} traffic not accepted by {port.chains.firewall}")
        yield Rule(PROXY_FIREWALL, (*said, *port.at(address), "-j", "DROP"))
    for address in () if port.serves_external else asked.load_balancer_vips:
        yield Rule(EXTERNAL_SERVICES, _refusal(port, port.external, port.at(address)))
    if asked.node_port and not port.serves_external:
        here = ("-m", "addrtype", "--dst-type", "LOCAL", *port.protocol, "--dport", str(asked.node_port))
        yield Rule(EXTERNAL_SERVICES, _refusal(port, port.external, here))
    if asked.health_check_node_port:
        said = comment(f"{port.name} health check node port")
        number = ("--dport", str(asked.health_check_node_port))
        yield Rule(NODE_PORTS, (*said, "-m", "tcp", "-p", "tcp", *number, "-j", "ACCEPT"))


def _refusal(port: Port, traffic: Traffic, match: tuple[str, ...]) -> tuple[str, ...]:
    words, verdict = _REFUSALS[traffic]
    return (*comment(f"{port.name} {words}"), *match, "-j", verdict)
