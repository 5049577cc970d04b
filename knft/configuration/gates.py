"""The feature gates of kube-proxy and their effect in knft (docs/behaviour/configuration.md#feature-gates)."""

from typing import NamedTuple


class Gate(NamedTuple):
    """A feature gate. ``fixed_value`` is the value as which knft behaves, None if the gate has no meaning in knft."""

    description: str
    fixed_value: bool | None = None
    is_locked: bool = False
    """Whether kube-proxy rejects the other value."""
    is_supported: bool = False
    """Whether both values have an effect."""

    @property
    def effect(self) -> str:
        """What the gate does in knft, for the documentation."""
        prefix = "no effect: " if self.fixed_value is None and not self.is_supported else ""
        return f"{prefix}{self.description}{'; false is rejected' if self.is_locked else ''}"


GATES_DESCRIPTION = "feature gates of kube-proxy; knft warns about values that it ignores, and rejects unknown gates"

_LOGGING = "all logging options that knft supports are always available"
_WINDOWS = "a feature of kube-proxy on Windows"

GATES: dict[str, Gate] = {
    "AllAlpha": Gate("set KubeProxyNFTablesLocalhostNodePorts itself; knft has no other alpha features"),
    "AllBeta": Gate("knft has no beta features"),
    "ComponentFlagz": Gate("knft always serves /flagz", fixed_value=True),
    "ComponentStatusz": Gate("knft always serves /statusz", fixed_value=True),
    "ContextualLogging": Gate("knft does not use Go's loggers"),
    "KubeProxyDrainingTerminatingNodes": Gate(
        "knft always answers 503 at /healthz while the node is being removed", fixed_value=True
    ),
    "KubeProxyIPVS": Gate("knft does not use IPVS"),
    "KubeProxyNFTablesLocalhostNodePorts": Gate(
        "with true, knft rejects packets to NodePorts at loopback addresses, or serves TCP there (nodePortAddresses)",
        is_supported=True,
    ),
    "LoadBalancerIPMode": Gate("knft always evaluates ipMode of load balancer IPs", fixed_value=True, is_locked=True),
    "LoggingAlphaOptions": Gate(_LOGGING),
    "LoggingBetaOptions": Gate(_LOGGING),
    "MinimizeIPTablesRestore": Gate("knft only sends differences to the kernel", fixed_value=True, is_locked=True),
    "MultiCIDRServiceAllocator": Gate("knft always watches ServiceCIDR objects", fixed_value=True, is_locked=True),
    "NFTablesNetlink": Gate("knft uses libnftables"),
    "NFTablesProxyMode": Gate("knft always uses nftables", fixed_value=True, is_locked=True),
    "PreferSameTrafficDistribution": Gate(
        "knft always uses the node and zone hints of EndpointSlices", fixed_value=True, is_locked=True
    ),
    "ProxyTerminatingEndpoints": Gate(
        "knft always uses terminating endpoints if there are no ready ones", fixed_value=True, is_locked=True
    ),
    "ServiceInternalTrafficPolicy": Gate(
        "knft always evaluates internalTrafficPolicy", fixed_value=True, is_locked=True
    ),
    "ServiceTrafficDistribution": Gate(
        "knft always uses the zone hints of EndpointSlices", fixed_value=True, is_locked=True
    ),
    "TopologyAwareHints": Gate("knft always uses the zone hints of EndpointSlices", fixed_value=True, is_locked=True),
    "WatchListClient": Gate("knft uses streaming lists if the API server supports them"),
    "WinDSR": Gate(_WINDOWS),
    "WinOverlay": Gate(_WINDOWS),
}
