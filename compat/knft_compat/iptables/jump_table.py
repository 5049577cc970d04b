"""The jumps from built-in chains to the mode's chains (docs/behaviour/iptables.md#jump-rules)."""

from knft_compat.iptables.names import EXTERNAL_SERVICES, KUBELET_FIREWALL, NODE_PORTS
from knft_compat.jumps import Jump
from knft_compat.names import FORWARD, POSTROUTING, PROXY_FIREWALL, SERVICES

_NEW = ("-m", "conntrack", "--ctstate", "NEW")
_EXTERNAL = "kubernetes externally-visible service portals"
_HEALTH = "kubernetes health check service ports"
_PORTALS = "kubernetes service portals"
_FORWARDING = "kubernetes forwarding rules"
_BALANCER = "kubernetes load balancer firewall"
_POSTROUTING = "kubernetes postrouting rules"

JUMPS = (
    Jump("filter", "INPUT", EXTERNAL_SERVICES, _EXTERNAL, _NEW),
    Jump("filter", "FORWARD", EXTERNAL_SERVICES, _EXTERNAL, _NEW),
    Jump("filter", "INPUT", NODE_PORTS, _HEALTH),
    Jump("filter", "FORWARD", SERVICES, _PORTALS, _NEW),
    Jump("filter", "OUTPUT", SERVICES, _PORTALS, _NEW),
    Jump("filter", "FORWARD", FORWARD, _FORWARDING),
    Jump("filter", "INPUT", PROXY_FIREWALL, _BALANCER, _NEW),
    Jump("filter", "OUTPUT", PROXY_FIREWALL, _BALANCER, _NEW),
    Jump("filter", "FORWARD", PROXY_FIREWALL, _BALANCER, _NEW),
    Jump("nat", "OUTPUT", SERVICES, _PORTALS),
    Jump("nat", "PREROUTING", SERVICES, _PORTALS),
    Jump("nat", "POSTROUTING", POSTROUTING, _POSTROUTING),
)
"""kube-proxy's jumps: a sync creates them, and a cleanup removes them."""

KUBELET_JUMPS = (
    Jump("filter", "INPUT", KUBELET_FIREWALL),
    Jump("filter", "OUTPUT", KUBELET_FIREWALL),
)
"""The kubelet's jumps: kube-proxy creates them too, but its cleanup keeps them."""
