"""Command line: starts, shows and removes the cluster of ``make cluster``."""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.cluster.cluster import Cluster
from deploy.cluster.machine import shell
from deploy.cluster.packages import write_locks
from deploy.cluster.plan import Families, Proxy, make_plan
from deploy.cluster.state import State, default_folder
from deploy.programs.errors import SetupError

_TOOLS = ("unshare", "nsenter", "mount", "umount", "ip", "dpkg-deb", "timeout")


def main() -> None:
    """Run the command that the arguments name."""
    arguments = _parser().parse_args()
    cluster = Cluster(State(default_folder()), lambda line: print(line, flush=True))
    try:
        _COMMANDS[arguments.command](cluster, arguments)
    except SetupError as error:
        sys.exit(f"cluster: {error}")
    except KeyboardInterrupt:
        sys.exit("cluster: interrupted")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.cluster", description="A Kubernetes cluster on one machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster")
    up.add_argument("--nodes", type=int, default=3, help="default: 3")
    up.add_argument("--zones", type=int, default=0, help="number of zones; default: each node has its own")
    up.add_argument("--families", type=Families, choices=list(Families), default=Families.DUAL, help="default: dual")
    up.add_argument(
        "--proxy",
        type=lambda text: tuple(map(Proxy, text.split(","))),
        default=(Proxy.KNFT,),
        help="Service proxy of each node, the last also of all further ones: knft (default), kube-proxy or none; "
        "kubeadm: kube-proxy's DaemonSet on all nodes, without knft",
    )
    commands.add_parser("down", help="remove the cluster")
    commands.add_parser("status", help="show machines, nodes and pods")
    run = commands.add_parser("exec", help="run a command on a node or the control plane")
    run.add_argument("machine", help="such as node1 or control-plane")
    run.add_argument("argv", nargs=argparse.REMAINDER, help="default: a shell")
    proxy = commands.add_parser("proxy", help="replace the Service proxy of a node")
    proxy.add_argument("node")
    choices = [each for each in Proxy if each is not Proxy.KUBEADM]
    proxy.add_argument("proxy", type=Proxy, choices=choices)
    commands.add_parser("lock", help="pin the newest Debian packages")
    return parser


def _up(cluster: Cluster, arguments: argparse.Namespace) -> None:
    _check_machine()
    plan = make_plan(arguments.nodes, arguments.families, arguments.zones, arguments.proxy)
    # "timeout" and service managers send SIGTERM; what was started must be removed then, too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    cluster.up(plan)
    _print_usage(cluster)


def _check_machine() -> None:
    """Raise SetupError if this user or machine cannot run a cluster."""
    if os.geteuid() != 0:
        msg = "only root can start a cluster: it makes namespaces and mounts file systems"
        raise SetupError(msg)
    if missing := [name for name in _TOOLS if shutil.which(name) is None]:
        msg = f"this machine lacks {', '.join(missing)}: install the packages util-linux, iproute2, dpkg and coreutils"
        raise SetupError(msg)


def _print_usage(cluster: Cluster) -> None:
    state, kubectl = cluster.state, cluster.programs.path("kubectl")
    tool = f"{sys.executable} -m deploy.cluster"
    print(f"""
The cluster runs. Its kubeconfig works from this machine's shells:

    export KUBECONFIG={state.kubeconfig}
    export PATH={Path(kubectl).parent}:$PATH
    kubectl get pods --all-namespaces --output=wide

The rules of a node, and a shell there:

    {tool} exec node1 nft list ruleset
    {tool} exec node1

Logs are in {state.logs}. Remove the cluster with: make cluster-down""")


def _down(cluster: Cluster, _arguments: argparse.Namespace) -> None:
    existed = cluster.state.exists
    cluster.down()
    print("cluster: removed" if existed else "cluster: no cluster exists")


def _status(cluster: Cluster, _arguments: argparse.Namespace) -> None:
    for machine in (cluster.control_plane.machine, *(node.machine for node in cluster.nodes)):
        text = ", ".join(machine.running_processes()) if machine.is_running else "does not run"
        print(f"{machine.name}: {text}")
    print(f"kubeconfig: {cluster.state.kubeconfig}", flush=True)
    print(cluster.kubectl("get", "nodes,pods", "--all-namespaces", "--output=wide"), end="")


def _exec(cluster: Cluster, arguments: argparse.Namespace) -> None:
    default = [os.environ.get("SHELL", "/bin/sh")]
    sys.exit(shell(cluster.machine(arguments.machine), arguments.argv or default))


def _proxy(cluster: Cluster, arguments: argparse.Namespace) -> None:
    cluster.set_proxy(arguments.node, arguments.proxy)


def _lock(_cluster: Cluster, _arguments: argparse.Namespace) -> None:
    write_locks()


_COMMANDS: Mapping[str, Callable[[Cluster, argparse.Namespace], None]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "exec": _exec,
    "proxy": _proxy,
    "lock": _lock,
}

if __name__ == "__main__":
    main()
