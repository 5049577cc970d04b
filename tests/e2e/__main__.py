"""Run upstream's end-to-end tests with knft; exit with status 1 if one fails."""

import argparse
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

from deploy.cluster.cluster import Cluster
from deploy.cluster.keys import ADMIN
from deploy.cluster.plan import Families, Proxy, make_plan
from deploy.cluster.processes import CHECKOUT
from deploy.cluster.state import default_folder
from deploy.programs import cache
from deploy.programs.build import Programs, programs
from deploy.programs.errors import SetupError
from knft import __version__
from tests.e2e import image, specs
from tests.e2e.command import Run, Selection, any_of, ginkgo_command
from tests.e2e.kubeadm_patch import patch_daemon_set
from tests.e2e.node_command import check_node_command
from tests.e2e.packages import write_locks
from tests.e2e.removal import RemovalCheck
from tests.e2e.results import Outcome, Result, parse_junit, summary
from tests.e2e.running_pods import check_pods, knft_pods
from tests.support.job_cluster import job_cluster
from tests.support.metallb import metallb_images, start_metallb

_PROGRAMS = ("e2e.test", "ginkgo", "kubectl", *image.PROGRAMS)


def main() -> None:
    """Do what the command line says."""
    arguments = _parse_arguments()
    # "timeout" and service managers send SIGTERM; the cluster must be removed then, too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        if arguments.lock:
            write_locks()
            return
        if arguments.names:
            specs.NAMES.write_text("".join(f"{name}\n" for name in _names(programs(_PROGRAMS))))
            return
        results, problems = _run(arguments, arguments.directory.absolute())
    except SetupError as error:
        sys.exit(f"e2e: {error}")
    for line in summary(results):
        print(line)
    for problem in problems:
        print(f"e2e: {problem}")
    print(f"e2e: {_versions(arguments)}")
    if problems or not results or any(result.outcome is Outcome.FAILED for result in results):
        sys.exit(1)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("--focus", help="regular expression of Go; default: all network specs")
    parser.add_argument("--skip", default="", help="regular expression of further specs to leave out")
    parser.add_argument("--subset", action="store_true", help="run the specs about Services that take few minutes")
    parser.add_argument("--nodes", type=int, default=3, help="default: 3")
    parser.add_argument("--zones", type=int, default=0, help="number of zones; default: each node has its own")
    families = list(Families)
    parser.add_argument("--families", type=Families, choices=families, default=Families.DUAL, help="default: dual")
    parser.add_argument("--processes", type=int, default=8, help="specs that run at the same time; default: 8")
    parser.add_argument("--proxy", type=Proxy, choices=list(Proxy), default=Proxy.KNFT, help="default: knft")
    parser.add_argument(
        "--kubeadm-patch", action="store_true", help="start kubeadm's kube-proxy, and put knft into its DaemonSet"
    )
    parser.add_argument(
        "--directory", type=Path, default=default_folder().with_name("e2e"), help="of the cluster and the reports"
    )
    parser.add_argument(
        "--load-balancers", action="store_true", help="start MetalLB, and run the specs that need load balancers"
    )
    parser.add_argument("--names", action="store_true", help=f"write the names of the specs, {specs.NAMES}, and exit")
    parser.add_argument("--lock", action="store_true", help="pin the newest Debian packages of the image, and exit")
    return parser.parse_args()


def selection(
    focus: str | None,
    skip: str,
    *,
    subset: bool,
    families: Families = Families.DUAL,
    load_balancers: bool = False,
) -> Selection:
    """Return the specs that the options select."""
    patterns = [each.pattern for each in specs.SKIPPED if not (load_balancers and each.pattern == specs.LOAD_BALANCERS)]
    skipped = [*patterns, *([specs.LONG] if subset else []), *([skip] if skip else [])]
    if families is not Families.DUAL:
        skipped.append(specs.DUAL_STACK)
    default = specs.LOAD_BALANCERS if load_balancers else specs.SUBSET if subset else specs.FOCUS
    return Selection(focus or default, any_of(skipped))


def _run(arguments: argparse.Namespace, folder: Path) -> tuple[list[Result], list[str]]:
    """Run the selected specs in a new cluster; return their results, and what was wrong besides."""
    built = programs(_PROGRAMS)
    _check_names(built)
    archives = [image.write_image(built, cache.cache_folder() / "e2e-images")]
    if arguments.load_balancers:
        archives += metallb_images()
    with job_cluster(folder) as (cluster, report):
        removal = RemovalCheck(cluster)
        proxy = Proxy.KUBEADM if arguments.kubeadm_patch else arguments.proxy
        cluster.up(make_plan(arguments.nodes, arguments.families, arguments.zones, (proxy,)), archives)
        if arguments.kubeadm_patch:
            patch_daemon_set(cluster)
        problems = [] if proxy in (Proxy.KUBE_PROXY, Proxy.NONE) else _check_knft(cluster, proxy)
        if arguments.load_balancers:
            start_metallb(cluster)
        selected = selection(
            arguments.focus,
            arguments.skip,
            subset=arguments.subset,
            families=arguments.families,
            load_balancers=arguments.load_balancers,
        )
        kubeconfig = str(cluster.keys.kubeconfig(ADMIN))
        _run_ginkgo(cluster, built, Run(selected, kubeconfig, report, arguments.processes, arguments.nodes))
        removal.record()
    results = [result for path in sorted(report.glob("junit*.xml")) for result in parse_junit(path.read_text())]
    return results, [*problems, *removal.problems()]


def _check_knft(cluster: Cluster, proxy: Proxy) -> list[str]:
    """Return what is wrong with knft's pods, and with the commands that run on a node."""
    pods = knft_pods(cluster, f"k8s-app={'kube-proxy' if proxy is Proxy.KUBEADM else 'knft'}")
    # The commands of one node: each makes a pod.
    return [*check_pods(cluster, pods), *(problem for pod in pods[-1:] for problem in check_node_command(cluster, pod))]


def _names(built: Programs) -> list[str]:
    """Return the names of the network specs of ``e2e.test``."""
    command = [built.path("e2e.test"), "--list-tests"]
    return specs.network_specs(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def _check_names(built: Programs) -> None:
    """Raise SetupError if the list of names, whose specs run or have a reason, is not that of ``e2e.test``."""
    if _names(built) != specs.NAMES.read_text().splitlines():
        msg = f"{specs.NAMES} does not list the specs of {built.release}: run python -m tests.e2e --names"
        raise SetupError(msg)


def _versions(arguments: argparse.Namespace) -> str:
    """Return what ran: the Service proxy, with knft's version and commit, Kubernetes, the kernel and the options."""
    proxy = Proxy.KUBEADM if arguments.kubeadm_patch else arguments.proxy
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    knft = f"knft {__version__} ({commit.strip() or 'no Git checkout'})"
    options = f"proxy {proxy}, families {arguments.families}, {arguments.nodes} nodes"
    return f"{knft}, Kubernetes {programs(_PROGRAMS).release}, Linux {platform.release()}, {options}"


def _run_ginkgo(cluster: Cluster, built: Programs, run: Run) -> None:
    """Run the specs in the control plane's network namespace, from which nodes and pods can be reached."""
    command = ginkgo_command(built, run)
    log = run.report / "log"
    print(f"e2e: running the specs; their output is in {log}", flush=True)
    started = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            cluster.control_plane.machine.network_command(*command), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    print(f"e2e: ginkgo ended with status {process.returncode} after {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
