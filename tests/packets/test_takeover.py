"""On a node with kube-proxy's leftovers, knft's endpoints answer, before the leftovers are removed and afterwards."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import leftovers
from tests.support.knft_command import knft, sync_once, write_manifests
from tests.support.lab import plan
from tests.support.lab.links import flush_conntrack
from tests.support.lab.namespace import Namespace
from tests.support.lab.outcomes import Answered
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial
from tests.support.log_lines import messages
from tests.support.scenario import VERSIONS, Scenario, address
from tests.support.waiting import TIMEOUT

TRIES = 12
"""Connections from each client: with two endpoints a test passes falsely with probability 10^-14."""

pytestmark = pytest.mark.kernel


def _cluster() -> Scenario:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "clusterIP": "$cluster.10", "ports": [{"port": 80, "nodePort": 30080}]},
    }
    endpoints: dict[str, Any] = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": ["$local-2"]}],
    }
    return Scenario("", [service, endpoints], ())


@pytest.fixture(scope="module")
def servers(lab: Lab) -> Iterator[Responders]:
    """Servers on kube-proxy's endpoints (local-1, remote-1) and on knft's (local-2)."""
    with Responders() as servers:
        for pod in ("local-1", "remote-1", "local-2"):
            servers.serve(lab.host(pod), 8080)
        yield servers


def _servers(lab: Lab, version: plan.Version, tries: int = TRIES, timeout: float = TIMEOUT) -> set[str]:
    """Return the servers of ``tries`` connections each from a pod, the node and outside to cluster IP and NodePort."""
    destinations = [(client, "cluster.10", 80) for client in ("local-3", "node", "outside")]
    destinations.append(("outside", "node", 30080))
    outcomes = [
        dial(lab.host(client), address(to, version), port, timeout=timeout)
        for client, to, port in destinations
        for _ in range(tries)
    ]
    return {outcome.server if isinstance(outcome, Answered) else "no answer" for outcome in outcomes}


@pytest.fixture
def node(lab: Lab) -> Iterator[Namespace]:
    """The lab's node; all rules are removed afterwards."""
    namespace = lab.host("node").namespace
    yield namespace
    knft(namespace, "cleanup")
    knft(namespace, "cleanup", "--kube-proxy", "all")
    flush_conntrack(namespace)


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_knft_translates_before_the_leftovers_and_after_cleanup(
    lab: Lab, node: Namespace, tmp_path: Path, backend: str, version: plan.Version
) -> None:
    """The leftovers send the same frontends to other endpoints, but not while knft runs."""
    family = leftovers.IPV4 if version == 4 else leftovers.IPV6
    node.run([f"{family.iptables}-{backend}-restore", "--noflush"], stdin=_without_affinity(family))
    assert _servers(lab, version) == {"local-1", "remote-1"}

    scenario = _cluster()
    write_manifests(tmp_path, scenario.manifests())
    log = sync_once(node, tmp_path, *scenario.arguments())
    (warning,) = messages(log, "W")
    assert f"kube-proxy's iptables rules are still in force (18 chains in {family.iptables}-{backend})" in warning
    assert _servers(lab, version) == {"local-2"}

    knft(node, "cleanup", "--kube-proxy", "iptables")
    assert "KUBE" not in node.run([f"{family.iptables}-{backend}-save"]).stdout
    assert _servers(lab, version) == {"local-2"}
    knft(node, "cleanup")
    assert _servers(lab, version, tries=1, timeout=1.0) == {"no answer"}


def _without_affinity(family: leftovers.Family) -> str:
    """Return the rules without session affinity, so that each connection chooses an endpoint."""
    lines = leftovers.iptables_mode(family).splitlines(keepends=True)
    return "".join(line for line in lines if "--rcheck" not in line)
