"""ServicePort: one port of a Service in one family (docs/behaviour/tracking.md#service-ports)."""

from msgspec import Struct

from knft.protocols import Protocol


class ServicePort(Struct, frozen=True, gc=False):
    """One port of a Service in one family; every address is canonical text of that family.

    ``affinity_seconds`` is the timeout of ClientIP affinity in seconds, 0 without affinity. ``node_port`` and
    ``health_check_node_port`` are 0 if there is none. ``creation_timestamp`` is the Service's, as the API server writes
    it (RFC 3339, UTC): these texts sort as times. It decides who owns a contested frontend.
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

    @property
    def is_externally_accessible(self) -> bool:
        """Whether clients outside the cluster can connect to the port."""
        return bool(self.node_port or self.load_balancer_vips or self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """Whether traffic may go to other nodes; with policy Local, pods' traffic to external frontends may, too."""
        return not self.internal_policy_local or self.is_externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        """Whether any traffic may only go to endpoints on this node."""
        return self.internal_policy_local or (self.external_policy_local and self.is_externally_accessible)
