"""``knft render --backend iptables`` and ``--backend ipvs``: what kube-proxy would hand to the kernel."""

from collections.abc import Callable, Iterator
from typing import Any

import click
from msgspec.structs import replace

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
    if part is None:
        texts = [page.json().decode() if output == "json" else page.script() for page in pages]
        click.echo(("" if output == "json" else "\n").join(texts), nl=False)
    else:
        click.echo("".join(_parts(pages, part, output)), nl=False)


def _maker(backend: str, options: dict[str, Any], *, cleanup: bool) -> Callable[[Cluster], Page]:
    """Return what makes a page out of a cluster, having read all flags and files."""
    if backend == "iptables":
        for_iptables = iptables_settings(options)
        return lambda cluster: (iptables.cleanup if cleanup else iptables.sync)(cluster, for_iptables)
    for_ipvs = ipvs_settings(options)
    for sentence in for_ipvs.remarks:
        click.echo(f"knft: {sentence}", err=True)
    return lambda cluster: (ipvs.cleanup if cleanup else ipvs.sync)(cluster, for_ipvs)


def _parts(pages: list[Page], name: str, output: str) -> Iterator[str]:
    """Yield one part of each page; raise UsageError where there is none, or no one tool could read them all."""
    tools: dict[str, None] = {}
    for page in pages:
        only = page.only(name)
        if only is None:
            msg = f"--part: there is no part {name!r}; there are {', '.join(page.names)}"
            raise UsageError(msg)
        tools |= dict.fromkeys(part.tool[0] for part in only.parts)
        yield only.json().decode() if output == "json" else page.part(name) or ""
    if output == "text" and len(tools) > 1:
        msg = f"--part: {name} is for another tool in each family, {' and '.join(tools)}; give --family"
        raise UsageError(msg)


def _clusters(paths: tuple[str, ...], config: Config, options: dict[str, Any]) -> dict[Family, Cluster]:
    knows_ip_modes = ipvs.knows_ip_modes(ipvs.Vintage(options["vintage"]))
    now = _read(paths, knows_ip_modes=knows_ip_modes)
    before = _read(options["before"], knows_ip_modes=knows_ip_modes) if options["before"] else None
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


def _read(paths: tuple[str, ...], *, knows_ip_modes: bool) -> tuple[Change, ...]:
    changes = read_manifests(paths)
    return changes if knows_ip_modes else tuple(Change(None, _without_ip_modes(change.current)) for change in changes)


def _without_ip_modes(item: objects.KubeObject | None) -> objects.KubeObject | None:
    """Return an object as an API server sends it that is too old for ``ipMode``."""
    if not isinstance(item, objects.Service) or item.status is None or item.status.load_balancer is None:
        return item
    ingress = tuple(replace(entry, ip_mode=None) for entry in item.status.load_balancer.ingress or ())
    return replace(item, status=objects.ServiceStatus(objects.LoadBalancerStatus(ingress)))


def _own_addresses(changes: tuple[Change, ...], config: Config) -> tuple[str, ...]:
    nodes = (change.current for change in changes if isinstance(change.current, objects.Node))
    listed = (address for node in nodes if node.metadata.name == config.node_name for address in node_addresses(node))
    return (*config.node_ips, *listed)


def _ports(state: ServiceState) -> tuple[ServedPort, ...]:
    plans = ((name, state.plan(name)) for name in sorted(state.service_ports()))
    return tuple(ServedPort(plan, state.endpoints(name)) for name, plan in plans if plan is not None)
