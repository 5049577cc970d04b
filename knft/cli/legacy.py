"""``knft render --backend iptables`` and ``--backend ipvs``: what kube-proxy would hand to the kernel."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from knft.cli.legacy_options import (
    host_addresses,
    iptables_settings,
    ipvs_settings,
    local_traffic,
    nodeport_cidrs,
)
from knft.cli.manifests import read_manifests
from knft.cli.options import config_from_options
from knft.config import Config, parse_any_addresses
from knft.errors import SourceError, UsageError
from knft.model import objects
from knft.model.names import Family, NamespacedName
from knft.model.objects import Change
from knft.sync.assemble import settled_states
from knft.sync.state import ServiceState
from knft_compat import iptables, ipvs
from knft_compat.cluster import Cluster, Masquerade, Node, ServedPort
from knft_compat.page import Page


class _Mode(NamedTuple):
    """A mode with its own flags and files read, and what objects it looks at."""

    page: Callable[[Cluster], Page]
    knows_ip_modes: bool = True
    changed: frozenset[NamespacedName] = frozenset()
    remarks: tuple[str, ...] = ()


class _Objects(NamedTuple):
    """What manifests hold: those of now, and those of the sync before, None without one."""

    now: tuple[Change, ...]
    before: tuple[Change, ...] | None


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
    # The mode's own default is every address, and one of its words is none of nftables' (I.5). ServiceCIDRs mean
    # nothing here; --service-cidr is taken all the same, so that one set of flags does for all backends.
    config = config_from_options({**options, "nodeport_addresses": ()})
    mode = _mode(backend, {**options, "family": family}, cleanup=cleanup)
    given = _read(paths, options["before"], mode)
    clusters = {
        item: found for item, found in _clusters(given, config, options) if family in (None, item.value.lower())
    }
    pages = [mode.page(cluster) for cluster in clusters.values()]
    if part is None:
        texts = [page.json().decode() if output == "json" else page.script() for page in pages]
        text = ("" if output == "json" else "\n").join(texts)
    else:
        text = "".join(_parts(pages, part, output))
    remarks = (*mode.remarks, *_unknown(given, mode.changed))
    if backend == "ipvs" and not cleanup:
        remarks += tuple(_without_addresses(config, clusters))
    for sentence in remarks:
        click.echo(f"knft: {sentence}", err=True)
    click.echo(text, nl=False)


def _mode(backend: str, options: dict[str, Any], *, cleanup: bool) -> _Mode:
    """Return the mode, having read its flags and files."""
    if backend == "iptables":
        for_iptables = iptables_settings(options)
        make = iptables.cleanup if cleanup else iptables.sync
        return _Mode(lambda cluster: make(cluster, for_iptables), changed=for_iptables.changed or frozenset())
    for_ipvs = ipvs_settings(options)
    make_ipvs = ipvs.cleanup if cleanup else ipvs.sync
    knows_ip_modes = ipvs.knows_ip_modes(for_ipvs.vintage)
    return _Mode(lambda cluster: make_ipvs(cluster, for_ipvs), knows_ip_modes, remarks=for_ipvs.remarks)


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


def _read(paths: tuple[str, ...], before: tuple[str, ...], mode: _Mode) -> _Objects:
    if "-" in paths and "-" in before:
        msg = "--before: standard input is what -f reads; name a file"
        raise UsageError(msg)
    if "" in before:
        msg = "--before: the name of the file is empty"
        raise UsageError(msg)
    now = _known_to(mode, read_manifests(paths))
    try:
        return _Objects(now, _known_to(mode, read_manifests(before)) if before else None)
    except SourceError as error:
        msg = f"--before: {error}"
        raise SourceError(msg) from error


def _known_to(mode: _Mode, changes: tuple[Change, ...]) -> tuple[Change, ...]:
    if mode.knows_ip_modes:
        return changes
    return tuple(Change(None, _without_ip_modes(change.current)) for change in changes)


def _without_ip_modes(item: objects.KubeObject | None) -> objects.KubeObject | None:
    """Return an object as an API server sends it that is too old for ``ipMode``."""
    if not isinstance(item, objects.Service) or item.status is None or item.status.load_balancer is None:
        return item
    ingress = tuple(replace(entry, ip_mode=None) for entry in item.status.load_balancer.ingress or ())
    return replace(item, status=objects.ServiceStatus(objects.LoadBalancerStatus(ingress)))


def _clusters(given: _Objects, config: Config, options: dict[str, Any]) -> Iterator[tuple[Family, Cluster]]:
    now = _settled(config, given.now)
    before = None if given.before is None else _settled(config, given.before)
    own = (*_own_addresses(given.now, config), *parse_any_addresses("--local-address", options["local_address"]))
    for family, state in now.items():
        earlier = None if before is None else before[family]
        node_ip = state.node.node_ip
        cidrs = nodeport_cidrs(family, options["nodeport_addresses"], node_ip)
        yield (
            family,
            Cluster(
                node=Node(family, node_ip, host_addresses(family, own), cidrs),
                ports=_ports(state),
                before=None if earlier is None else _ports(earlier),
                has_moved=earlier is not None and earlier.node.zone != state.node.zone,
                local_traffic=local_traffic(config, state.node.pod_cidr),
                masquerade=Masquerade(config.masquerade_all, config.masquerade_mark, options["random_fully"]),
            ),
        )


def _settled(config: Config, changes: tuple[Change, ...]) -> dict[Family, ServiceState]:
    (states,) = settled_states(config, changes)
    return states


def _own_addresses(changes: tuple[Change, ...], config: Config) -> tuple[str, ...]:
    """Return the addresses that an interface of the node has; an ExternalIP is often its router's."""
    nodes = (change.current for change in changes if isinstance(change.current, objects.Node))
    status = (node.status for node in nodes if node.metadata.name == config.node_name)
    listed = (item for found in status if found is not None for item in found.addresses or ())
    return (*config.node_ips, *(item.address for item in listed if item.type == "InternalIP"))


def _ports(state: ServiceState) -> tuple[ServedPort, ...]:
    plans = ((name, state.plan(name)) for name in sorted(state.service_ports()))
    return tuple(ServedPort(plan, state.endpoints(name)) for name, plan in plans if plan is not None)


def _unknown(given: _Objects, changed: frozenset[NamespacedName]) -> Iterator[str]:
    """Yield what there is to say about Services that have changed and that no manifest has."""
    listed = (change.current for change in (*given.now, *(given.before or ())))
    known = {item.key for item in listed if isinstance(item, objects.Service)}
    for name in sorted(changed - known, key=str):
        yield f"--changed: no manifest has a Service {name}; that is right only where it has gone"


def _without_addresses(config: Config, clusters: dict[Family, Cluster]) -> Iterator[str]:
    """Yield where NodePorts are not served only because nobody says what addresses the node has."""
    for family, cluster in clusters.items():
        if not cluster.node.local_addresses and any(served.plan.port.node_port for served in cluster.ports):
            yield (
                f"no {family.value} address of {config.node_name} is known, and so no NodePort is served: "
                "give --node-ip or --local-address"
            )
