"""ServicePort: one port of a Service in one family (docs/behaviour/tracking.md#service-ports)."""

from msgspec import Struct

from knft.model.annotations import RANDOM
from knft.protocols import Protocol


class ServicePort(Struct, frozen=True, gc=False):
    """One port of a Service in one family; every address is canonical text of that family.

    ``affinity_seconds`` is the timeout of ClientIP affinity in seconds, 0 without affinity. ``node_port`` and
    ``health_check_node_port`` are 0 if there is none. ``creation_timestamp`` is the Service's, as the API server writes
    it (RFC 3339, UTC), so that the order of the texts is the order of the times. It decides which Service owns a
    contested frontend. ``load_balancer_vips`` are the load balancer IPs whose ``ipMode`` is not ``Proxy``.
    ``load_balancing`` is how the endpoint of a new connection is chosen (``knft.model.annotations``).
    ``resets_connections`` tells whether TCP connections to deleted endpoints are ended (docs/behaviour/draining.md).
    """

    cluster_ip: str
    port: int
    protocol: Protocol
    node_port: int = 0
    external_ips: tuple[str, ...] = ()
    load_balancer_vips: tuple[str, ...] = ()
    load_balancer_source_ranges: tuple[str, ...] = ()
    affinity_seconds: int = 0
    health_check_node_port: int = 0
    internal_policy_local: bool = False
    external_policy_local: bool = False
    creation_timestamp: str = ""
    resets_connections: bool = False
    load_balancing: str = RANDOM

    @property
    def hashes_clients(self) -> bool:
        """Whether the hash of a client determines its endpoint. ClientIP affinity takes precedence."""
        return self.load_balancing != RANDOM and not self.affinity_seconds

    @property
    def is_externally_accessible(self) -> bool:
        """Whether clients outside the cluster can connect to the port."""
        return bool(self.node_port or self.load_balancer_vips or self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """Whether some traffic may go to endpoints on other nodes.

        True unless the internal policy is Local and there is no external frontend. Even with external policy Local,
        traffic from pods of this node to an external frontend may go to other nodes.
        """
        return not self.internal_policy_local or self.is_externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        """Whether policy Local applies to some traffic."""
        return self.internal_policy_local or (self.external_policy_local and self.is_externally_accessible)
