"""knft starts with 10 000 Services: /livez answers before the first sync, so that the start-up probe has time."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import urllib3
import yaml

from tests.bench.process_tree import cpu_seconds
from tests.cluster.applier import Applier
from tests.cluster.bench.stored_objects import copies, stored_keys
from tests.cluster.churn.numbered_endpoints import endpoint_slice, service
from tests.cluster.cluster import Cluster
from tests.cluster.cluster_knft import ClusterKnft
from tests.cluster.kube_proxy import HEALTH_PORT, get
from tests.cluster.rendered_manifests import KUSTOMIZE
from tests.cluster.service_account import ServiceAccount
from tests.support.knft_command import knft
from tests.support.scenario import Scenario
from tests.support.waiting import wait_until

SERVICES = 10_000
ROOM = 3
"""How many times the CPU time of the complete first sync has to fit into the time that the start-up probe gives."""
_TRIGGERED = "2026-01-02T03:04:05Z"

pytestmark = pytest.mark.kernel


@pytest.fixture
def stored_services(cluster: Cluster) -> Iterator[None]:
    """Services with a slice each, the first created by the API server, the others copied in etcd."""
    api, store = cluster.api, cluster.etcd_store
    Applier(cluster).apply(Scenario("", [], ()).manifests())
    api.create(service(0))
    api.create(endpoint_slice(0, [0], _TRIGGERED))
    templates = {kind: store.get(key) for kind, key in stored_keys(0).items()}
    for template in templates.values():
        # Half of an object, of which knft reads nothing.
        template["metadata"].pop("managedFields", None)
    numbers = {index: [index] for index in range(1, SERVICES)}
    store.put_all(copies(templates, numbers, numbers, _TRIGGERED))
    yield
    # Services first: the API server repairs those without an IPAddress.
    for kind, last in (("Service", "0"), ("EndpointSlice", "0"), ("IPAddress", "1.1")):
        store.delete_all(stored_keys(0)[kind].removesuffix(last))


class _Probes(NamedTuple):
    """The statuses of /livez and, after each of them, of /readyz."""

    alive: int
    ready: int


@pytest.mark.usefixtures("stored_services")
def test_livez_succeeds_before_the_first_sync_of_10000_services(
    cluster: Cluster, service_account: ServiceAccount, tmp_path: Path
) -> None:
    daemon = ClusterKnft(cluster, service_account, tmp_path)
    daemon.set_flags(*Scenario("", [], ()).arguments())
    daemon.start()
    try:
        answers = _answers_until_ready(cluster, daemon)
        seconds = cpu_seconds(daemon.process.pid)
        rules = cluster.namespace.run(["nft", "list", "table", "ip", "knft"]).stdout
    finally:
        daemon.close()
        knft(cluster.namespace, "cleanup")
    assert len(set(re.findall(r"\b10\.96\.\d+\.\d+ \. tcp \. 80\b", rules))) == SERVICES
    assert {answer.alive for answer in answers} == {200}
    assert [answer.ready for answer in answers].count(503) > 1
    assert seconds * ROOM < _start_up_seconds()


def _answers_until_ready(cluster: Cluster, daemon: ClusterKnft) -> list[_Probes]:
    """Return all answers from the first one until the process is ready."""
    answers: list[_Probes] = []

    def is_ready() -> bool:
        try:
            alive, ready = (get(cluster.namespace, HEALTH_PORT, path).status for path in ("/livez", "/readyz"))
        except urllib3.exceptions.HTTPError:
            assert not answers, "the server of the probes has stopped to answer"
            return False
        answers.append(_Probes(alive, ready))
        return ready == 200

    wait_until(is_ready, "knft is not ready", daemon.check, interval=0.1)
    return answers


def _start_up_seconds() -> int:
    """Return the time after which the kubelet restarts a container whose /livez has not succeeded."""
    pod = yaml.safe_load((KUSTOMIZE / "base/daemonset.yaml").read_text())["spec"]["template"]["spec"]
    probe = pod["containers"][0]["startupProbe"]
    assert probe["httpGet"] == {"path": "/livez", "port": "healthz"}
    return int(probe["periodSeconds"]) * int(probe["failureThreshold"])
