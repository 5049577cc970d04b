"""Replaces the cluster's certificate authority, in the order of Kubernetes' own guide: trust both, then change."""

import signal
from pathlib import Path

from deploy.cluster import keys as names
from deploy.cluster.control_plane import API_SERVER, CONTROLLER_MANAGER, SCHEDULER
from deploy.cluster.keys import Keys
from deploy.cluster.node import KUBELET
from tests.faults.testbed import SECONDS, SYSTEM, Testbed
from tests.support.processes import processes_of_pod
from tests.support.waiting import wait_until

_POD_AUTHORITY = "root/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


def replace_authority(testbed: Testbed) -> None:
    """Let everything trust a second CA, and then give the API server a certificate that this one has signed.

    The controller manager has another flag afterwards, so this is the last fault.
    """
    keys, plan = testbed.cluster.keys, testbed.cluster.plan
    successor = Keys(testbed.cluster.programs.path("keys"), testbed.cluster.state.folder / "next-keys")
    successor.create(plan)
    first = Path(keys.path("first-ca.crt"))
    first.write_bytes(Path(keys.path("ca.crt")).read_bytes())
    both = Path(keys.path("ca.crt")).read_text() + Path(successor.path("ca.crt")).read_text()
    Path(keys.path("ca.crt")).write_text(both)
    users = (names.ADMIN, names.CONTROLLER_MANAGER, names.SCHEDULER, names.PROXY)
    for name in (*(node.name for node in plan.nodes), *users):
        keys.write_kubeconfig(keys.kubeconfig(name), name, plan.api_address)
    # The controller manager signs with one CA, and exits if the file has two.
    _restart(testbed, CONTROLLER_MANAGER, f"--cluster-signing-cert-file={first}")
    _restart(testbed, SCHEDULER)
    for node in testbed.cluster.nodes:
        node.machine.stop_process(KUBELET)
        node.start_kubelet()
    wait_until(lambda: _is_trusted(testbed, both), "knft's pods do not get the new CA", timeout=SECONDS, interval=2.0)
    for name in ("apiserver.crt", "apiserver.key"):
        Path(keys.path(name)).write_bytes(Path(successor.path(name)).read_bytes())
    # The API server would serve open connections for a minute.
    _restart(testbed, API_SERVER, number=signal.SIGKILL)
    testbed.cluster.control_plane.wait_until_ready()


def _restart(testbed: Testbed, name: str, *flags: str, number: int = signal.SIGTERM) -> None:
    testbed.cluster.control_plane.stop_component(name, number)
    testbed.cluster.control_plane.start_component(name, *flags)


def _is_trusted(testbed: Testbed, authorities: str) -> bool:
    """Whether each of knft's pods has both CAs: the kubelet updates the volume once a minute."""
    if testbed.get("configmap", "kube-root-ca.crt", namespace=SYSTEM)["data"]["ca.crt"] != authorities:
        return False
    pods = testbed.knft_pods()
    files = [path for pod in pods for path in _authority_files(pod["metadata"]["uid"])]
    return len(files) >= len(pods) and all(path.read_text() == authorities for path in files)


def _authority_files(uid: str) -> list[Path]:
    paths = (Path("/proc") / str(pid) / _POD_AUTHORITY for pid in processes_of_pod(uid))
    return [path for path in paths if path.exists()]
