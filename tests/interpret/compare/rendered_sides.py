"""Renders kube-proxy's and knft's rules, the two sides of ``knft diff``, for objects, random clusters and scenarios."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from knft.cli.commands.rule_sets import diff
from knft.cli.diff import rendered_sides_from_options
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.cli.options import config_from_options
from knft.comparison.sides import KnftInput, Sides, rendered_sides
from knft.config import parse_addresses
from knft.families import IpVersion
from knft.interpret.rules import RuleSet
from knft.proxy_mode import Mode
from knft.source.paths import read_paths
from tests.interpret.service_model.random_clusters import Cluster
from tests.interpret.service_model.service_model import Settings
from tests.support.families import VERSIONS, address
from tests.support.lab import plan
from tests.support.scenario import Scenario

Objects = Sequence[dict[str, Any]]


def render_sides(mode: Mode, objects: Objects, arguments: Sequence[str]) -> Sides:
    """Return knft's and kube-proxy's rules for objects and flags."""
    manifests = read_paths(("-",), _as_list(objects).encode())
    options = diff.make_context("diff", ["--filename=-", *arguments]).params
    return rendered_sides_from_options(mode, manifests.changes, options)


def render_optional_features(cluster: Cluster) -> Mapping[IpVersion, RuleSet]:
    """Return knft's rules for a random cluster: INVALID packets are dropped, and NodePorts on loopback are served."""
    options = diff.make_context("diff", ["--filename=-", *cluster_arguments(cluster)]).params
    config = replace(config_from_options(options), drop_invalid_packets=True, localhost_nodeports=True)
    changes = read_paths(("-",), _as_list(cluster.objects).encode()).changes
    addresses = parse_addresses("--local-address", options["local_address"])
    return rendered_sides(KnftInput(changes, config, addresses), kube_proxy_options(Mode.IPTABLES, options)).right


def _as_list(objects: Objects) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def render_cluster(mode: Mode, cluster: Cluster) -> Sides:
    """Return both sides for a random cluster."""
    return render_sides(mode, cluster.objects, cluster_arguments(cluster))


def diff_command(mode: Mode, cluster: Cluster) -> str:
    """Return the shell command that repeats the comparison of a random cluster."""
    objects = _as_list(cluster.objects)
    return f"knft diff --against {mode.value} -f - {shlex.join(cluster_arguments(cluster))} <<'END'\n{objects}\nEND"


def cluster_arguments(cluster: Cluster) -> list[str]:
    """Return a random cluster's settings as command line flags."""
    return [f"--node={cluster.node}", *_flags(cluster.settings)]


def _flags(settings: Settings) -> Iterator[str]:
    lists = {
        "--local-address": settings.addresses,
        "--node-ip": settings.node_ips,
        "--nodeport-addresses": _nodeport_addresses(settings.nodeport_addresses or ()),
        "--service-cidr": settings.service_cidrs,
        "--cluster-cidr": settings.cluster_cidrs,
    }
    for name, values in lists.items():
        yield from (f"{name}={value}" for value in values)
    yield f"--detect-local-mode={settings.detect_local}"
    if settings.interface:
        is_bridge = settings.detect_local == "BridgeInterface"
        yield f"--{'pod-bridge-interface' if is_bridge else 'pod-interface-name-prefix'}={settings.interface}"
    if settings.masquerade_all:
        yield "--masquerade-all"


def _nodeport_addresses(words: Sequence[str]) -> Iterator[str]:
    """Yield NodePort addresses as flags; knft rejects ``localhost``, so use the equivalent networks."""
    for word in words:
        yield from ("127.0.0.0/8", "::1/128") if word == "localhost" else (word,)


def render_scenario(mode: Mode, scenario: Scenario) -> Sides:
    """Return both sides for a scenario, on its node in the lab."""
    return render_sides(mode, scenario.manifests(), [*scenario.arguments(), *_node_arguments(scenario)])


def _node_arguments(scenario: Scenario) -> Iterator[str]:
    yield f"--node={plan.NODE.node_name}"
    given = [name.removeprefix("$") for name in scenario.addresses.get("node", ())]
    for name in ("node", "node.pods", *given):
        yield from (f"--local-address={address(name, version)}" for version in VERSIONS)
