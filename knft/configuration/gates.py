"""The feature gates of kube-proxy and their effect in knft (docs/behaviour/configuration.md#feature-gates)."""

from typing import NamedTuple


class Gate(NamedTuple):
    """A feature gate. ``fixed_value`` is the value that knft behaves by, None if the gate has no meaning in knft."""

    description: str
    fixed_value: bool | None = None
    is_locked: bool = False
    """Whether kube-proxy rejects the other value."""


GATES_DESCRIPTION = "feature gates of kube-proxy; knft warns if it behaves differently, and rejects unknown gates"

_ALWAYS = "knft always does this"
_NOTHING = "it has no effect in knft"
_ENDPOINTS = "knft always uses terminating endpoints, hints and both traffic policies"

GATES: dict[str, Gate] = {
    "AllAlpha": Gate(_NOTHING),
    "AllBeta": Gate(_NOTHING),
    "ComponentFlagz": Gate("knft always serves /flagz", fixed_value=True),
    "ComponentStatusz": Gate("knft always serves /statusz", fixed_value=True),
    "ContextualLogging": Gate(_NOTHING),
    "KubeProxyDrainingTerminatingNodes": Gate(
        "knft always reports a node that is being removed as not eligible", fixed_value=True
    ),
    "KubeProxyIPVS": Gate("knft does not use IPVS"),
    "KubeProxyNFTablesLocalhostNodePorts": Gate("knft never serves NodePorts on loopback addresses", fixed_value=False),
    "LoadBalancerIPMode": Gate(_ALWAYS, fixed_value=True, is_locked=True),
    "LoggingAlphaOptions": Gate(_NOTHING),
    "LoggingBetaOptions": Gate(_NOTHING),
    "MinimizeIPTablesRestore": Gate("knft only sends differences to the kernel", fixed_value=True, is_locked=True),
    "MultiCIDRServiceAllocator": Gate("knft always watches ServiceCIDR objects", fixed_value=True, is_locked=True),
    "NFTablesNetlink": Gate("knft uses libnftables"),
    "NFTablesProxyMode": Gate("knft always uses nftables", fixed_value=True, is_locked=True),
    "PreferSameTrafficDistribution": Gate(_ALWAYS, fixed_value=True, is_locked=True),
    "ProxyTerminatingEndpoints": Gate(_ENDPOINTS, fixed_value=True, is_locked=True),
    "ServiceInternalTrafficPolicy": Gate(_ENDPOINTS, fixed_value=True, is_locked=True),
    "ServiceTrafficDistribution": Gate(_ALWAYS, fixed_value=True, is_locked=True),
    "TopologyAwareHints": Gate(_ENDPOINTS, fixed_value=True, is_locked=True),
    "WatchListClient": Gate("knft uses streaming lists if the API server supports them"),
    "WinDSR": Gate(_NOTHING),
    "WinOverlay": Gate(_NOTHING),
}
