"""``knft render --backend iptables`` and ``--backend ipvs``: what kube-proxy would hand to the kernel."""

from collections.abc import Callable
from typing import Any

import click

from knft.cli.legacy_options import (
    host_addresses,
    iptables_settings,
    ipvs_settings,
    local_traffic,
    nodeport_cidrs,
)
from knft.cli.manifests import differences, read_manifests
from knft.cli.options import config_from_options
from knft.config import Config, parse_any_addresses
from knft.decide.node import node_addresses
from knft.errors import UsageError
from knft.model import objects
from knft.model.names import Family
from knft.model.objects import Change
from knft.sync.assemble import settled_states
from knft.sync.state import ServiceState
from knft_compat import iptables, ipvs
from knft_compat.cluster import Cluster, Masquerade, Node, ServedPort
from knft_compat.page import Page


def render_legacy(
    backend: str,
    *,
    paths: tuple[str, ...],
    output: str,
    family: str | None,
    part: str | None,
    cleanup: bool,
    **options: Any,  # noqa: ANN401 - click's values
) -> None:
    """Print the pages of a mode, or raise before anything is printed."""
    # The mode's own default is every address, and one of its words is none of nftables' (I.5).
    config = config_from_options({**options, "nodeport_addresses": ()})
    make = _maker(backend, {**options, "family": family}, cleanup=cleanup)
    clusters = _clusters(paths, config, options)
    pages = [make(cluster) for item, cluster in clusters.items() if family in (None, item.value.lower())]
    texts = [_printed(page, output, part) for page in pages]
    click.echo(("" if output == "json" or part else "\n").join(texts), nl=False)


def _maker(backend: str, options: dict[str, Any], *, cleanup: bool) -> Callable[[Cluster], Page]:
    """Return what makes a page out of a cluster, having read all flags and files."""
    if backend == "iptables":
        for_iptables = iptables_settings(options)
        return lambda cluster: (iptables.cleanup if cleanup else iptables.sync)(cluster, for_iptables)
    for_ipvs = ipvs_settings(options)
    for sentence in for_ipvs.remarks:
        click.echo(f"knft: {sentence}", err=True)
    return lambda cluster: (ipvs.cleanup if cleanup else ipvs.sync)(cluster, for_ipvs)


def _printed(page: Page, output: str, part: str | None) -> str:
    if part is not None:
        text = page.part(part)
        if text is None:
            msg = f"--part: there is no part {part!r}; there are {', '.join(page.names)}"
            raise UsageError(msg)
        return text
    return page.json().decode() if output == "json" else page.script()


def _clusters(paths: tuple[str, ...], config: Config, options: dict[str, Any]) -> dict[Family, Cluster]:
    now = read_manifests(paths)
    before = read_manifests(options["before"]) if options["before"] else None
    stages = (now,) if before is None else (before, differences(before, now))
    own = (*_own_addresses(now, config), *parse_any_addresses("--local-address", options["local_address"]))
    nodeport_texts = options["nodeport_addresses"]
    earlier: dict[Family, tuple[ServedPort, ...]] = {}
    clusters: dict[Family, Cluster] = {}
    for states in settled_states(config, *stages):
        earlier = {family: cluster.ports for family, cluster in clusters.items()}
        clusters = {
            family: Cluster(
                node=Node(
                    family,
                    state.node.node_ip,
                    host_addresses(family, own),
                    nodeport_cidrs(family, nodeport_texts, state.node.node_ip),
                ),
                ports=_ports(state),
                before=earlier.get(family),
                local_traffic=local_traffic(config, state.node.pod_cidr),
                masquerade=Masquerade(config.masquerade_all, config.masquerade_mark, options["random_fully"]),
            )
            for family, state in states.items()
        }
    return clusters


def _own_addresses(changes: tuple[Change, ...], config: Config) -> tuple[str, ...]:
    nodes = (change.current for change in changes if isinstance(change.current, objects.Node))
    listed = (address for node in nodes if node.metadata.name == config.node_name for address in node_addresses(node))
    return (*config.node_ips, *listed)


def _ports(state: ServiceState) -> tuple[ServedPort, ...]:
    plans = ((name, state.plan(name)) for name in sorted(state.service_ports()))
    return tuple(ServedPort(plan, state.endpoints(name)) for name, plan in plans if plan is not None)
