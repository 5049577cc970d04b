"""The map, chains and rule that reject packets to NodePorts at loopback addresses that no process of knft serves.

They exist only with kube-proxy's feature gate, whose rules have the same names (docs/behaviour/loopback-nodeports.md).
"""

from collections.abc import Iterator

from knft.config import Config
from knft.families import Family
from knft.model.plan import FrontendKind, ServicePlan
from knft.nft import expressions as nft
from knft.nft.objects import Chain, Container, Entry, Key
from knft.protocols import NFT_PROTOCOLS, Protocol
from knft.render import names
from knft.render.frontends import frontend_key

LOOPBACK_NETWORKS = {Family.IPV4: "127.0.0.0/8", Family.IPV6: "::1/128"}


def reject_chain_name(protocol: Protocol) -> str:
    """Return the name of the chain that counts and rejects the packets of a protocol."""
    return f"{names.LOCALHOST_REJECT_PREFIX}{NFT_PROTOCOLS[protocol]}"


def localhost_containers() -> tuple[Container, ...]:
    """Return the declaration of the map with the NodePorts."""
    key = "inet_proto . inet_service"
    return (Container(names.LOCALHOST_REJECTS, key, "verdict", comment="NodePorts rejected at loopback addresses"),)


def localhost_chains(family: Family, config: Config) -> tuple[Chain, ...]:
    """Return the chains that count and reject packets, one for each protocol because the metric has that label."""
    rejecting = (nft.Rule((nft.Count(), nft.Reject())),)
    return tuple(Chain(reject_chain_name(each), rejecting) for each in config.rejected_localhost_protocols(family))


def localhost_rules(family: Family, config: Config) -> tuple[nft.Rule, ...]:
    """Return the rule that leads to these chains."""
    if not config.rejected_localhost_protocols(family):
        return ()
    to_loopback = nft.Match(nft.Payload(family.nft, "daddr"), nft.Network(LOOPBACK_NETWORKS[family]))
    node_port = nft.Concat((nft.Meta("l4proto"), nft.Payload("th", "dport")))
    return (nft.Rule((to_loopback, nft.VerdictMap(node_port, names.LOCALHOST_REJECTS))),)


def localhost_rejections(
    plan: ServicePlan, comment: str, family: Family, config: Config
) -> Iterator[tuple[tuple[str, Key], Entry]]:
    """Yield the elements of a plan's NodePort. As in kube-proxy, it does not matter whether it has endpoints."""
    for frontend in plan.frontends:
        if frontend.kind is not FrontendKind.NODE_PORT:
            continue
        if frontend.protocol in config.rejected_localhost_protocols(family):
            verdict = nft.Goto(reject_chain_name(frontend.protocol))
            yield (names.LOCALHOST_REJECTS, frontend_key(frontend)), Entry(verdict, comment)
