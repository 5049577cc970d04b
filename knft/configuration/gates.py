"""The feature gates that kube-proxy knows (I.9), and what each comes to here."""

from typing import NamedTuple


class Gate(NamedTuple):
    """What knft does whatever the gate says: None where there is nothing to be on or off."""

    description: str
    fixed_value: bool | None = None
    is_locked: bool = False
    """Whether kube-proxy refuses the other value."""


GATES_DESCRIPTION = (
    "gates that kube-proxy knows are taken, with a warning where knft does otherwise; unknown ones are refused"
)

_ALWAYS = "knft always does so"
_NOTHING = "it means nothing here"
_ENDPOINTS = "terminating endpoints, hints and both traffic policies always count"

GATES: dict[str, Gate] = {
    "AllAlpha": Gate(_NOTHING),
    "AllBeta": Gate(_NOTHING),
    "ComponentFlagz": Gate("/flagz is always served", fixed_value=True),
    "ComponentStatusz": Gate("/statusz is always served", fixed_value=True),
    "ContextualLogging": Gate(_NOTHING),
    "KubeProxyDrainingTerminatingNodes": Gate(
        "a node that is being removed is always said to be not eligible", fixed_value=True
    ),
    "KubeProxyIPVS": Gate("knft has no IPVS"),
    "KubeProxyNFTablesLocalhostNodePorts": Gate("NodePorts on loopback addresses are never served", fixed_value=False),
    "LoadBalancerIPMode": Gate(_ALWAYS, fixed_value=True, is_locked=True),
    "LoggingAlphaOptions": Gate(_NOTHING),
    "LoggingBetaOptions": Gate(_NOTHING),
    "MinimizeIPTablesRestore": Gate("only what differs is ever sent", fixed_value=True, is_locked=True),
    "MultiCIDRServiceAllocator": Gate("ServiceCIDR objects are always followed", fixed_value=True, is_locked=True),
    "NFTablesNetlink": Gate("knft works through libnftables"),
    "NFTablesProxyMode": Gate("knft is always nftables", fixed_value=True, is_locked=True),
    "PreferSameTrafficDistribution": Gate(_ALWAYS, fixed_value=True, is_locked=True),
    "ProxyTerminatingEndpoints": Gate(_ENDPOINTS, fixed_value=True, is_locked=True),
    "ServiceInternalTrafficPolicy": Gate(_ENDPOINTS, fixed_value=True, is_locked=True),
    "ServiceTrafficDistribution": Gate(_ALWAYS, fixed_value=True, is_locked=True),
    "TopologyAwareHints": Gate(_ENDPOINTS, fixed_value=True, is_locked=True),
    "WatchListClient": Gate("knft asks for a streaming list wherever the server has it"),
    "WinDSR": Gate(_NOTHING),
    "WinOverlay": Gate(_NOTHING),
}
