"""ServicePort: what one port of a Service asks for, in one family (A.3)."""

from msgspec import Struct

from knft.protocols import Protocol


class ServicePort(Struct, frozen=True, gc=False):
    """One port of a Service in one family; every address is canonical text of that family.

    ``affinity_seconds`` is the timeout of ClientIP affinity in seconds, 0 without affinity. ``node_port`` and
    ``health_check_node_port`` are 0 where there is none. ``created`` is the Service's creation timestamp as the
    API wrote it (RFC 3339, UTC), so that texts compare as times; it settles who owns a frontend.
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
        """Whether clients outside the cluster can dial the port at all."""
        return bool(self.node_port or self.load_balancer_vips or self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """Whether any traffic may go to endpoints on other nodes; policy Local still short-circuits to them."""
        return not self.internal_policy_local or self.is_externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        """Whether any traffic is confined to endpoints on this node."""
        return self.internal_policy_local or (self.external_policy_local and self.is_externally_accessible)
