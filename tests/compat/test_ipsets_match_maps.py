"""Tests that the entries of the IPVS mode's ipsets and virtual servers match knft's maps and sets.

The clusters are random (docs/behaviour/ipvs.md#maps-and-ipsets). Of a contested frontend only the key is compared:
kube-proxy writes the entries of every claim, knft those of the owner.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knft.cli.commands import cli
from knft.decide.frontends import claimed_frontends
from knft.families import Family
from knft.leftovers.names import ipv6_set
from knft.model import addresses
from knft.model.objects import ObjectChange
from knft.model.plan import FrontendKind, ServicePlan
from knft.nft.expressions import Goto
from knft.nft.objects import Entry, Key, Value
from knft.render.layout import whole_table
from knft.sync.assemble import rendering_daemon, states_after_batches
from knft_compat.ipvs.sets import SETS
from tests.compat.iptables_render import endpoints, service
from tests.support import random_objects
from tests.support.kernel_harness import CONFIG, decode_manifest

NODE_IPS = {Family.IPV4: "192.0.2.11", Family.IPV6: "2001:db8:1::11"}
FLAGS = ["--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48"]

ADDRESSED = ("KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL", "KUBE-LOAD-BALANCER")

Elements = Mapping[str, Mapping[Key, Value]]
Target = tuple[str, int]
Frontend = tuple[str, str, int]
"""Address ("" for a NodePort), protocol, port."""


class RenderedCluster(NamedTuple):
    """One cluster and family in both modes: ipsets by IPv4 name, virtual servers, knft's elements, and the plans."""

    family: Family
    sets: dict[str, set[str]]
    servers: dict[Frontend, set[Target]]
    elements: Elements
    plans: tuple[ServicePlan, ...]

    def entries(self, *names: str) -> set[str]:
        """Return the entries of the named sets."""
        return {entry for name in names for entry in self.sets[name]}

    def uncontested(self) -> Iterator[tuple[Frontend, ServicePlan, FrontendKind]]:
        """Yield the frontends that only one Service port claims, with only one of its addresses.

        If a Service has its cluster IP among its external IPs, IPVS has one virtual server for both, with the policy
        that is written last; knft uses the policy of the cluster IP.
        """
        claimed = [(frontend, plan) for plan in self.plans for frontend in claimed_frontends(plan.port)]
        count = Counter(frontend.key for frontend, _ in claimed)
        for frontend, plan in claimed:
            own = (plan.port.cluster_ip, *plan.port.load_balancer_vips, *plan.port.external_ips)
            if count[frontend.key] == 1 and own.count(frontend.address or "") <= 1:
                yield (frontend.address or "", plan.port.protocol.lower(), frontend.port), plan, frontend.kind


def cluster(rng: Random) -> list[dict[str, Any]]:
    """Return the manifests of a random cluster."""
    names = [("Service", name) for name in random_objects.SERVICES]
    names += [("EndpointSlice", name) for name in random_objects.SLICES[: rng.randint(3, 14)]]
    drawn = [(kind, name, random_objects.random_traits(kind, rng)) for kind, name in names]
    node = random_objects.random_traits("Node", rng) | {"addresses": list(NODE_IPS.values())}
    return [random_objects.manifest(kind, name, traits) for kind, name, traits in [*drawn, ("Node", "node-1", node)]]


def render_in_both_modes(manifests: list[dict[str, Any]], folder: Path) -> Iterator[RenderedCluster]:
    """Yield the output of both modes for a cluster, by family."""
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    result = CliRunner().invoke(cli, ["render", "-f", str(file), "--backend", "ipvs", "-o", "json", *FLAGS])
    assert result.exit_code == 0, result.output
    changes = [ObjectChange(None, decode_manifest(item)) for item in manifests]
    daemon, recorders = rendering_daemon(CONFIG)
    daemon.handle(changes)
    daemon.sync()
    (states,) = states_after_batches(CONFIG, changes)
    for line in result.stdout.splitlines():
        output = json.loads(line)
        family = Family(output["family"])
        parts = {part["part"]: part for part in output["parts"]}
        names = {ipv6_set(name) if family is Family.IPV6 else name: name for name in SETS}
        plans = (states[family].plan(name) for name in sorted(states[family].service_ports()))
        yield RenderedCluster(
            family,
            {names[item["name"]]: set(item["entries"]) for item in parts["ipset"]["sets"]},
            _servers(parts["ipvsadm"]["servers"], family),
            whole_table(*recorders[family].first_sync()).elements,
            tuple(plan for plan in plans if plan is not None),
        )


def _servers(written: list[dict[str, Any]], family: Family) -> dict[Frontend, set[Target]]:
    return {
        (
            "" if server["address"] == NODE_IPS[family] else server["address"],
            server["protocol"].lower(),
            server["port"],
        ): {(real["address"], real["port"]) for real in server["reals"]}
        for server in written
    }


def _entry(key: Key) -> str:
    """Return a frontend in ipset's format."""
    address, protocol, port = key
    return f"{address},{protocol}:{port}"


def _chain(modes: RenderedCluster, frontend: Frontend) -> str:
    """Return the chain that knft uses for a frontend, "" if none."""
    address, protocol, port = frontend
    container = "service-ips" if address else "service-nodeports"
    key: Key = frontend if address else (protocol, port)
    entry = modes.elements.get(container, {}).get(key)
    return entry.verdict.chain if isinstance(entry, Entry) and isinstance(entry.verdict, Goto) else ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False))
def test_ipset_entries_match_knft_maps_and_sets(folder: Path, rng: Random) -> None:
    for modes in render_in_both_modes(cluster(rng), folder):
        _assert_frontends(modes)
        _assert_node_ports(modes)
        _assert_source_ranges(modes)
        _assert_hairpins(modes)
        _assert_servers(modes)
        # kube-proxy binds the addresses of frontends; knft binds none.
        bound = {entry.partition(",")[0] for entry in modes.entries(*ADDRESSED)}
        assert modes.entries("KUBE-IPVS-IPS") == bound - {NODE_IPS[modes.family]}


def _assert_frontends(modes: RenderedCluster) -> None:
    """Cluster IPs, external IPs, load balancers: keys of service-ips, and the pool in the name of the chain."""
    frontends = {**modes.elements.get("service-ips", {}), **modes.elements.get("no-endpoint-services", {})}
    assert {_entry(key) for key in frontends} == modes.entries(*ADDRESSED)
    assert {str(address) for (address,) in modes.elements.get("cluster-ips", {})} == {
        entry.partition(",")[0] for entry in modes.entries("KUBE-CLUSTER-IP")
    }
    local = modes.entries("KUBE-EXTERNAL-IP-LOCAL", "KUBE-LOAD-BALANCER-LOCAL")
    for frontend, plan, kind in modes.uncontested():
        chain = _chain(modes, frontend)
        if kind in (FrontendKind.EXTERNAL_IP, FrontendKind.LOAD_BALANCER_VIP):
            assert (_entry(frontend) in local) == plan.port.external_policy_local
        is_pool = not plan.port.affinity_seconds and not plan.port.hashes_clients
        if chain and is_pool and kind is not FrontendKind.CLUSTER_IP and frontend[0]:
            assert chain.startswith("external-local-" if _entry(frontend) in local else "external-pool-")


def _assert_node_ports(modes: RenderedCluster) -> None:
    """NodePorts: keys of service-nodeports, and the pool in the name of the chain."""
    frontends = {**modes.elements.get("service-nodeports", {}), **modes.elements.get("no-endpoint-nodeports", {})}
    assert {(str(protocol), int(str(port))) for protocol, port in frontends} == _node_ports(modes, "KUBE-NODE-PORT-")
    local = _node_ports(modes, "KUBE-NODE-PORT-LOCAL-")
    for (address, protocol, port), plan, _ in modes.uncontested():
        chain = _chain(modes, (address, protocol, port))
        if chain and not address and not plan.port.affinity_seconds and not plan.port.hashes_clients:
            assert chain.startswith("external-local-" if (protocol, port) in local else "external-nodeport-")


def _node_ports(modes: RenderedCluster, prefix: str) -> set[tuple[str, int]]:
    numbers = {(protocol, int(entry)) for protocol in ("tcp", "udp") for entry in modes.sets[prefix + protocol.upper()]}
    return numbers | {("sctp", int(entry.rpartition(":")[2])) for entry in modes.sets[f"{prefix}SCTP-HASH"]}


def _assert_source_ranges(modes: RenderedCluster) -> None:
    """Source-restricted frontends, and one interval set of source ranges and of VIPs as sources."""
    restricted = {_entry(key) for key in modes.elements.get("guarded-frontends", {})}
    allowed: dict[str, set[str]] = {}
    for *key, source in modes.elements.get("source-ranges", {}):
        allowed.setdefault(_entry(tuple(key)), set()).add(str(source))
    for frontend, plan, kind in modes.uncontested():
        entry = _entry(frontend)
        assert (entry in modes.sets["KUBE-LOAD-BALANCER-FW"]) == (entry in restricted)
        if kind is FrontendKind.LOAD_BALANCER_VIP and plan.port.load_balancer_source_ranges:
            listed = _sources(modes, "KUBE-LOAD-BALANCER-SOURCE-CIDR", entry)
            listed |= {addresses.as_network(vip) for vip in _sources(modes, "KUBE-LOAD-BALANCER-SOURCE-IP", entry)}
            # If the node is an allowed source, knft allows all VIPs of the Service as sources at each VIP, IPVS only
            # the VIP itself.
            listed |= {
                addresses.as_network(vip)
                for vip in plan.port.load_balancer_vips
                if _node_is_in_source_ranges(modes, entry)
            }
            assert allowed[entry] == {addresses.without_host_length(cidr) for cidr in addresses.collapse(listed)}


def _sources(modes: RenderedCluster, name: str, entry: str) -> set[str]:
    return {item.rpartition(",")[2] for item in modes.sets[name] if item.rpartition(",")[0] == entry}


def _node_is_in_source_ranges(modes: RenderedCluster, entry: str) -> bool:
    return bool(_sources(modes, "KUBE-LOAD-BALANCER-SOURCE-IP", entry))


def test_endpoint_address_can_be_local_and_remote_in_different_services(folder: Path) -> None:
    """The local endpoint is terminating, and only the IPVS mode lists it; the ready endpoint is remote."""
    manifests = [
        service("shop/a", clusterIP="10.96.0.1"),
        endpoints("shop/a", "LT10.244.0.1", "10.244.0.2"),
        service("shop/b", clusterIP="10.96.0.2"),
        endpoints("shop/b", "10.244.0.1"),
    ]
    ipv4, _ = render_in_both_modes(manifests, folder)
    assert ipv4.sets["KUBE-LOOP-BACK"] == {"10.244.0.1,tcp:80,10.244.0.1"}
    _assert_hairpins(ipv4)


def _assert_hairpins(modes: RenderedCluster) -> None:
    """KUBE-LOOP-BACK has all local endpoints, knft the reachable local ones."""
    reachable = {
        f"{endpoint.address},{plan.port.protocol.lower()}:{endpoint.port},{endpoint.address}"
        for plan in modes.plans
        for endpoint in plan.endpoints.all_reachable
        if endpoint.is_local
    }
    elements = modes.elements.get("hairpin-connections", {})
    hairpins = {f"{address},{protocol}:{port},{source}" for source, address, protocol, port in elements}
    assert hairpins == modes.entries("KUBE-LOOP-BACK") & reachable


def _assert_servers(modes: RenderedCluster) -> None:
    """Real servers are the endpoints of the frontend's pool, or all if policy Local has no local endpoint."""
    for frontend, plan, kind in modes.uncontested():
        internal = kind is FrontendKind.CLUSTER_IP
        local = plan.port.internal_policy_local if internal else plan.port.external_policy_local
        if (
            plan.port.affinity_seconds
            or plan.port.hashes_clients
            or (local and not plan.endpoints.local and not _chain(modes, frontend))
        ):
            continue
        assert modes.servers[frontend] == _pool(modes, frontend, local=local and bool(plan.endpoints.local))


def _pool(modes: RenderedCluster, frontend: Frontend, *, local: bool) -> set[Target]:
    address, protocol, port = frontend
    container = f"{'local-' if local else ''}{'' if address else 'nodeport-'}endpoints-{protocol}"
    prefix: Key = (address, port) if address else (port,)
    elements = modes.elements.get(container, {})
    return {target for key, target in elements.items() if key[:-1] == prefix and isinstance(target, tuple)}
