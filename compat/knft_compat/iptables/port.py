"""A Service port as the rules see it: its names, and which of its chains there are (D.5)."""

from msgspec import Struct

from knft.model.endpoint import Endpoint
from knft.model.names import ServicePortName
from knft.model.plan import CategorizedEndpoints, Traffic
from knft.model.service_port import ServicePort
from knft_compat.cluster import ServedPort
from knft_compat.iptables.names import PortChains, endpoint_chain, port_chains

_SERVED = (Traffic.CLUSTER, Traffic.LOCAL)


class Port(Struct, frozen=True):
    """One Service port; ``internal`` is for its cluster IP, ``external`` for all its other frontends."""

    name: ServicePortName
    asked: ServicePort
    endpoints: CategorizedEndpoints
    internal: Traffic
    external: Traffic
    chains: PortChains

    @property
    def protocol(self) -> tuple[str, ...]:
        """The arguments that match the protocol and load its module, in kube-proxy's order."""
        protocol = self.asked.protocol.lower()
        return ("-m", protocol, "-p", protocol)

    def at(self, address: str) -> tuple[str, ...]:
        """Return the arguments that match the port at one of its addresses."""
        return (*self.protocol, "-d", address, "--dport", str(self.asked.port))

    def endpoint_chain(self, endpoint: Endpoint) -> str:
        """Return the name of an endpoint's chain."""
        return endpoint_chain(self.name, endpoint.key)

    @property
    def serves_internal(self) -> bool:
        """Whether the cluster IP leads to an endpoint."""
        return self.internal in _SERVED

    @property
    def serves_external(self) -> bool:
        """Whether the other frontends lead to an endpoint, also for clients that get no short cut."""
        return self.external in _SERVED

    @property
    def internal_chain(self) -> str:
        """The chain that the cluster IP leads to."""
        return self.chains.local if self.asked.internal_policy_local else self.chains.cluster

    @property
    def external_chain(self) -> str:
        """The chain that the other frontends end in, for clients that get no short cut."""
        return self.chains.local if self.asked.external_policy_local else self.chains.cluster

    @property
    def load_balancer_chain(self) -> str:
        """The chain that load balancer VIPs lead to."""
        return self.chains.firewall if self.has_firewall else self.chains.external

    @property
    def has_external(self) -> bool:
        """Whether there is a chain for external traffic."""
        return self.endpoints.has_any and self.asked.externally_accessible

    @property
    def has_firewall(self) -> bool:
        """Whether there is a chain for source ranges."""
        asked = self.asked
        return self.endpoints.has_any and bool(asked.load_balancer_vips and asked.load_balancer_source_ranges)

    @property
    def policies(self) -> tuple[tuple[str, tuple[Endpoint, ...]], ...]:
        """The chains that choose among endpoints, and among which."""
        found = []
        if self.endpoints.cluster and self.asked.uses_cluster_endpoints:
            found.append((self.chains.cluster, self.endpoints.cluster))
        if self.endpoints.local and self.asked.uses_local_endpoints:
            found.append((self.chains.local, self.endpoints.local))
        return tuple(found)

    @property
    def own_chains(self) -> tuple[str, ...]:
        """All its chains, in kube-proxy's order."""
        return (
            *((self.chains.external,) if self.has_external else ()),
            *((self.chains.firewall,) if self.has_firewall else ()),
            *(chain for chain, _ in self.policies),
            *map(self.endpoint_chain, self.endpoints.all_reachable),
        )


def port_of(served: ServedPort) -> Port:
    """Return what the rules see of a Service port."""
    plan = served.plan
    return Port(plan.name, plan.port, plan.endpoints, plan.internal, plan.external, port_chains(plan.name))
