"""From manifests to the clusters that the legacy modes are a function of."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from knft.cli.legacy_options import host_addresses, local_traffic, nodeport_cidrs
from knft.cli.manifests import read_manifests
from knft.config import Config, parse_any_addresses
from knft.errors import SourceError, UsageError
from knft.model import objects
from knft.model.names import Family, NamespacedName
from knft.model.objects import Change
from knft.sync.assemble import settled_states
from knft.sync.state import ServiceState
from knft_compat.cluster import Cluster, Masquerade, Node, ServedPort


class Objects(NamedTuple):
    """What manifests hold: those of now, and those of the sync before, None without one."""

    now: tuple[Change, ...]
    before: tuple[Change, ...] | None

    @property
    def services(self) -> frozenset[NamespacedName]:
        """The names of all Services, of now and of before."""
        listed = (change.current for change in (*self.now, *(self.before or ())))
        return frozenset(item.key for item in listed if isinstance(item, objects.Service))


def read_objects(paths: tuple[str, ...], before: tuple[str, ...], *, knows_ip_modes: bool) -> Objects:
    """Return what manifests hold; raise UsageError or SourceError. An old API server knows nothing of ``ipMode``."""
    if "-" in paths and "-" in before:
        msg = "--before: standard input is what -f reads; name a file"
        raise UsageError(msg)
    if "" in before:
        msg = "--before: the name of the file is empty"
        raise UsageError(msg)
    now = _read(paths, knows_ip_modes=knows_ip_modes)
    try:
        return Objects(now, _read(before, knows_ip_modes=knows_ip_modes) if before else None)
    except SourceError as error:
        msg = f"--before: {error}"
        raise SourceError(msg) from error


def _read(paths: tuple[str, ...], *, knows_ip_modes: bool) -> tuple[Change, ...]:
    changes = read_manifests(paths)
    if knows_ip_modes:
        return changes
    return tuple(Change(None, _without_ip_modes(change.current)) for change in changes)


def _without_ip_modes(item: objects.KubeObject | None) -> objects.KubeObject | None:
    """Return an object as an API server sends it that is too old for ``ipMode``."""
    if not isinstance(item, objects.Service) or item.status is None or item.status.load_balancer is None:
        return item
    ingress = tuple(replace(entry, ip_mode=None) for entry in item.status.load_balancer.ingress or ())
    return replace(item, status=objects.ServiceStatus(objects.LoadBalancerStatus(ingress)))


def clusters_of(given: Objects, config: Config, options: dict[str, Any]) -> Iterator[tuple[Family, Cluster]]:
    """Yield the cluster of each family; raise UsageError, naming a flag."""
    now = _settled(config, given.now)
    before = None if given.before is None else _settled(config, given.before)
    own = (*own_addresses(given.now, config), *parse_any_addresses("--local-address", options["local_address"]))
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


def own_addresses(changes: tuple[Change, ...], config: Config) -> tuple[str, ...]:
    """Return the addresses that an interface of the node has; an ExternalIP is often its router's."""
    nodes = (change.current for change in changes if isinstance(change.current, objects.Node))
    status = (node.status for node in nodes if node.metadata.name == config.node_name)
    listed = (item for found in status if found is not None for item in found.addresses or ())
    return (*config.node_ips, *(item.address for item in listed if item.type == "InternalIP"))


def _ports(state: ServiceState) -> tuple[ServedPort, ...]:
    plans = ((name, state.plan(name)) for name in sorted(state.service_ports()))
    return tuple(ServedPort(plan, state.endpoints(name)) for name, plan in plans if plan is not None)
