"""The control plane: etcd, API server, controller manager and scheduler in one machine."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.cluster import keys as names
from deploy.cluster import network, processes
from deploy.cluster.keys import Keys
from deploy.cluster.machine import Machine
from deploy.cluster.machine_init import MachineSettings
from deploy.cluster.plan import API_PORT, Plan
from deploy.cluster.processes import not_started
from deploy.cluster.state import State
from deploy.programs.build import Programs
from deploy.programs.errors import SetupError

NAME = "control-plane"
ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
COMPONENTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
_ETCD, _ETCD_PEERS = "https://127.0.0.1:2379", "https://127.0.0.1:2380"
_READY_SECONDS = 120.0


class ControlPlane:
    """The machine of the control plane."""

    def __init__(self, state: State, plan: Plan, programs: Programs, keys: Keys) -> None:
        """Start nothing."""
        self.machine = Machine(NAME, state.machine(NAME), state.logs)
        self._plan = plan
        self._programs = programs
        self._keys = keys

    def start_machine(self) -> None:
        """Start the machine with its network, to which nodes can be connected then."""
        self.machine.start(MachineSettings(NAME, sysctls=network.SYSCTLS))
        network.set_up_control_plane(self.machine, self._plan)

    def start_components(self) -> None:
        """Start all components, and wait until the API server is ready."""
        for name in COMPONENTS[:2]:
            self.start_component(name)
        self.wait_until_ready()
        for name in COMPONENTS[2:]:
            self.start_component(name)

    def start_component(self, name: str, *flags: str) -> None:
        """Start a component, with additional flags; do not wait until it is ready."""
        command = [self._programs.path(name), *component_flags(self._keys, self._plan, self._data)[name], *flags]
        self.machine.start_process(name, command)

    def stop_component(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop a component, and wait for its end; the API server takes a minute, if the signal is not SIGKILL."""
        self.machine.stop_process(name, number)

    @property
    def _data(self) -> Path:
        return self.machine.folder / "etcd"

    def wait_until_ready(self) -> None:
        """Wait until the API server is ready; raise SetupError if it or etcd has exited, or that takes too long."""
        kubectl = [self._programs.path("kubectl"), f"--kubeconfig={self._keys.kubeconfig(names.ADMIN)}"]
        command = self.machine.network_command(*kubectl, "get", "--raw=/readyz", "--request-timeout=5s")
        self.wait(lambda: _succeeds(command), API_SERVER, (ETCD, API_SERVER))

    def wait(self, is_done: Callable[[], bool], what: str, needed: Sequence[str] = COMPONENTS) -> None:
        """Wait for a condition; raise SetupError if a needed component exits, or that takes too long."""
        deadline = time.monotonic() + _READY_SECONDS
        while not is_done():
            for name in needed:
                if self.machine.exit_status(name) is not None:
                    raise not_started(name, self.machine.log(name))
            if time.monotonic() > deadline:
                raise not_started(what, self.machine.log(what))
            time.sleep(0.2)


def _succeeds(command: Sequence[str]) -> bool:
    try:
        processes.run(command)
    except SetupError:
        return False
    return True


def component_flags(keys: Keys, plan: Plan, data: Path) -> Mapping[str, list[str]]:
    """Return the flags of each component."""
    return {
        ETCD: _etcd_flags(keys, data),
        API_SERVER: _api_server_flags(keys, plan),
        CONTROLLER_MANAGER: _controller_manager_flags(keys, plan),
        SCHEDULER: _client_flags(keys, names.SCHEDULER),
    }


def _etcd_flags(keys: Keys, data: Path) -> list[str]:
    return [
        f"--data-dir={data}",
        "--name=etcd",
        f"--initial-cluster=etcd={_ETCD_PEERS}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        f"--listen-peer-urls={_ETCD_PEERS}",
        f"--initial-advertise-peer-urls={_ETCD_PEERS}",
        f"--cert-file={keys.path('etcd.crt')}",
        f"--key-file={keys.path('etcd.key')}",
        "--client-cert-auth",
        f"--trusted-ca-file={keys.path('ca.crt')}",
        f"--peer-cert-file={keys.path('etcd.crt')}",
        f"--peer-key-file={keys.path('etcd.key')}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={keys.path('ca.crt')}",
        # The data is deleted with the cluster.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server_flags(keys: Keys, plan: Plan) -> list[str]:
    return [
        f"--etcd-servers={_ETCD}",
        f"--etcd-cafile={keys.path('ca.crt')}",
        f"--etcd-certfile={keys.path('etcd.crt')}",
        f"--etcd-keyfile={keys.path('etcd.key')}",
        f"--advertise-address={plan.api_host}",
        f"--bind-address={'::' if ':' in plan.api_host else '0.0.0.0'}",  # noqa: S104 - in its own namespace
        f"--secure-port={API_PORT}",
        "--allow-privileged=true",
        f"--tls-cert-file={keys.path('apiserver.crt')}",
        f"--tls-private-key-file={keys.path('apiserver.key')}",
        f"--client-ca-file={keys.path('ca.crt')}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={keys.path('apiserver-kubelet.crt')}",
        f"--kubelet-client-key={keys.path('apiserver-kubelet.key')}",
        f"--kubelet-certificate-authority={keys.path('ca.crt')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={keys.path('ca.crt')}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys.path('front-proxy.crt')}",
        f"--proxy-client-key-file={keys.path('front-proxy.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.path('sa.key')}",
        f"--service-account-signing-key-file={keys.path('sa.key')}",
        f"--service-cluster-ip-range={','.join(plan.service_cidrs)}",
    ]


def _controller_manager_flags(keys: Keys, plan: Plan) -> list[str]:
    return [
        *_client_flags(keys, names.CONTROLLER_MANAGER),
        f"--root-ca-file={keys.path('ca.crt')}",
        f"--service-account-private-key-file={keys.path('sa.key')}",
        "--use-service-account-credentials",
        f"--cluster-signing-cert-file={keys.path('ca.crt')}",
        f"--cluster-signing-key-file={keys.path('ca.key')}",
        f"--cluster-cidr={plan.cluster_cidr}",
        # The plan assigns them, because CNI's configuration names them.
        "--allocate-node-cidrs=false",
    ]


def _client_flags(keys: Keys, user: str) -> list[str]:
    path = keys.kubeconfig(user)
    flags = [f"--{name}={path}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]
    return [*flags, "--leader-elect=false", "--bind-address=127.0.0.1"]
