"""A Service port with the names of its chains, and which of them exist (docs/behaviour/iptables.md#service-ports)."""

from msgspec import Struct

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.plan import CategorizedEndpoints, TrafficAction
from knft.model.service_port import ServicePort
from knft_compat.iptables.names import PortChains, endpoint_chain, port_chains
from knft_compat.sync_input import PlannedPort

_TO_ENDPOINTS = (TrafficAction.CLUSTER, TrafficAction.LOCAL)


class RenderedPort(Struct, frozen=True):
    """One Service port; ``internal`` is the action for its cluster IP, ``external`` for all other frontends."""

    name: ServicePortName
    port: ServicePort
    endpoints: CategorizedEndpoints
    internal: TrafficAction
    external: TrafficAction
    chains: PortChains

    @property
    def protocol_match(self) -> tuple[str, ...]:
        """The arguments that match the protocol, in kube-proxy's order."""
        protocol = self.port.protocol.lower()
        return ("-m", protocol, "-p", protocol)

    def match_address(self, address: str) -> tuple[str, ...]:
        """Return the arguments that match the port on one of its addresses."""
        return (*self.protocol_match, "-d", address, "--dport", str(self.port.port))

    def endpoint_chain(self, endpoint: Endpoint) -> str:
        """Return the name of an endpoint's chain."""
        return endpoint_chain(self.name, endpoint.key)

    @property
    def has_internal_endpoints(self) -> bool:
        """Whether the cluster IP has endpoints."""
        return self.internal in _TO_ENDPOINTS

    @property
    def has_external_endpoints(self) -> bool:
        """Whether the other frontends have endpoints for remote clients."""
        return self.external in _TO_ENDPOINTS

    @property
    def internal_chain(self) -> str:
        """The chain of the cluster IP."""
        return self.chains.local if self.port.internal_policy_local else self.chains.cluster

    @property
    def external_chain(self) -> str:
        """The chain of the other frontends, for remote clients."""
        return self.chains.local if self.port.external_policy_local else self.chains.cluster

    @property
    def load_balancer_chain(self) -> str:
        """The chain of load balancer IPs."""
        return self.chains.firewall if self.has_firewall_chain else self.chains.external

    @property
    def has_external_chain(self) -> bool:
        """Whether the port has a chain for external traffic."""
        return self.endpoints.has_any_endpoints and self.port.is_externally_accessible

    @property
    def has_firewall_chain(self) -> bool:
        """Whether the port has a chain for source ranges."""
        port = self.port
        return self.endpoints.has_any_endpoints and bool(port.load_balancer_vips and port.load_balancer_source_ranges)

    @property
    def policy_chains(self) -> tuple[tuple[str, tuple[Endpoint, ...]], ...]:
        """The chains that select endpoints, each with its endpoints; an unused policy has none."""
        chains = ((self.chains.cluster, self.endpoints.cluster), (self.chains.local, self.endpoints.local))
        return tuple((chain, endpoints) for chain, endpoints in chains if endpoints)

    @property
    def chain_names(self) -> tuple[str, ...]:
        """The names of all chains of the port, in kube-proxy's order."""
        return (
            *((self.chains.external,) if self.has_external_chain else ()),
            *((self.chains.firewall,) if self.has_firewall_chain else ()),
            *(chain for chain, _ in self.policy_chains),
            *map(self.endpoint_chain, self.endpoints.all_reachable),
        )


def render_port(port: PlannedPort) -> RenderedPort:
    """Return a Service port with the names of its chains."""
    plan = port.plan
    return RenderedPort(plan.name, plan.port, plan.endpoints, plan.internal, plan.external, port_chains(plan.name))
