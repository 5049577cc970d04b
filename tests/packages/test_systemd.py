"""The installed knft.service under a real systemd, with an API server in the container's network.

The API server is the one of the other tests, with TLS, a bearer token and real sockets; ``make test-cluster`` runs
knft with kube-apiserver.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages import roots
from tests.packages.conftest import CHECKOUT, Packages
from tests.packages.documented_settings import code_blocks, used_drop_in
from tests.packages.installed_service import CONFIGURATION, KUBECONFIG, TOKEN, UNIT, Cluster, Service
from tests.packages.systemd_container import SystemdContainer
from tests.support.certificates import CertificateAuthority
from tests.support.fake_api.server import FakeApiServer
from tests.support.log_lines import messages
from tests.support.process_privileges import CAPABILITY_SETS, NET_ADMIN, SECCOMP_FILTER, parse_mounts, parse_status
from tests.support.waiting import wait_until

CREDENTIAL = "/run/credentials/knft.service/kubeconfig"
MAX_EXPOSURE = 2.0
START_SECONDS = 30
"""What the test sets as TimeoutStartSec: longer than a start of knft until its first notification."""
WATCHDOG_SECONDS = 10
PLUGIN = 'until [ "$(cat /proc/$$/oom_score_adj)" = 0 ]; do sleep 0.1; done'
CLOSE_WAIT = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"


@pytest.fixture(scope="module")
def container(packages: Packages) -> Iterator[SystemdContainer]:
    """A host with the installed package, and with its own nft: an older one cannot list what a newer one wrote."""
    with SystemdContainer(roots.root(packages.release), {packages.folder: "/packages"}) as booted:
        options = ("-y", "-qq", "--no-install-recommends", "-o", "Dpkg::Options::=--force-unsafe-io")
        noninteractive = ("env", "DEBIAN_FRONTEND=noninteractive")
        booted.run(*noninteractive, "apt-get", *options, "install", f"/packages/{packages.newest.name}", "nftables")
        yield booted


@pytest.fixture(scope="module")
def installed(container: SystemdContainer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The unit, with a kubeconfig and the installed configuration, which leaves the sysctls of all namespaces alone.

    A credential plugin runs in the sandbox, and gives the token when the kernel may kill it before other processes.
    """
    cluster = Cluster(container.namespace, tmp_path_factory.mktemp("cluster"))
    cluster.use_credential_plugin(PLUGIN)
    text = container.read(CONFIGURATION)
    for installed, changed in (("#hostnameOverride:", "hostnameOverride:"), ("maxPerCore: 32768", "maxPerCore: 0")):
        assert text.count(installed) == 1
        text = text.replace(installed, changed)
    container.write(CONFIGURATION, text)
    made = Service(container, cluster)
    made.override()
    yield made
    cluster.stop()


@pytest.fixture
def unit(installed: Service) -> Service:
    """The unit, whose kubeconfig only root can read."""
    installed.write_kubeconfig()
    return installed


@pytest.fixture
def running(unit: Service) -> Service:
    """The unit, started and ready."""
    unit.start()
    return unit


def test_installation_neither_enables_nor_starts_the_service(container: SystemdContainer) -> None:
    assert container.run("systemctl", "is-enabled", UNIT, check=False).stdout == "disabled\n"
    assert container.show(UNIT, "InvocationID") == ""
    assert container.run("id", "--name", "--groups", "knft").stdout == "knft\n"


def test_systemd_accepts_the_unit(container: SystemdContainer) -> None:
    """The container has no man(1), with which the command would look for the manual pages."""
    path = container.show(UNIT, "FragmentPath")
    done = container.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path)
    assert (done.stdout, done.stderr) == ("", "")


def test_exposure_is_the_documented_one(container: SystemdContainer) -> None:
    """As systemd computes it from the unit alone, and for the loaded unit."""
    path = container.show(UNIT, "FragmentPath")
    (documented,) = re.findall(
        r"overall exposure level is (\d\.\d)", (CHECKOUT / "docs/operations/systemd.md").read_text()
    )
    for arguments in (("--offline=true", path), (UNIT,)):
        printed = container.run("systemd-analyze", "security", "--no-pager", *arguments).stdout
        (found,) = re.findall(r"exposure level for knft.service: (\d+\.\d)", printed)
        assert found == documented
        assert float(found) <= MAX_EXPOSURE


def test_service_says_that_the_kubeconfig_is_missing_and_starts_when_it_is_there(unit: Service) -> None:
    unit.container.run("rm", KUBECONFIG)
    unit.cluster.start()
    refused = unit.container.run("systemctl", "start", UNIT, check=False)
    assert refused.returncode == 1
    assert unit.priorities(f"no kubeconfig: write {KUBECONFIG}") == {"3"}
    unit.write_kubeconfig()
    wait_until(lambda: unit.show("ActiveState") == "active", "the service does not start", interval=0.2)
    unit.container.run("systemctl", "stop", UNIT)
    unit.container.run("nft", "flush", "ruleset")


def test_start_lasts_until_the_first_sync(unit: Service) -> None:
    """A missing API server delays readiness for longer than TimeoutStartSec."""
    unit.cluster.stop()
    unit.override(f"TimeoutStartSec={START_SECONDS}")
    unit.container.run("systemctl", "start", "--no-block", UNIT)
    wait_until(lambda: "cannot watch the API server" in str(unit.entries()), "knft has not started", interval=0.2)
    started = unit.number("ExecMainStartTimestampMonotonic")
    deadline = started + START_SECONDS * 1_000_000
    wait_until(lambda: _uptime(unit.container) > deadline, "TimeoutStartSec has not passed", interval=0.5)
    assert unit.show("ActiveState") == "activating"
    assert unit.show("StatusText") == "waiting for the Services and endpoints of the cluster"
    assert unit.rules() == ""
    unit.cluster.start()
    wait_until(lambda: unit.show("ActiveState") != "activating", "the service is not ready", interval=0.05)
    unit.override()
    assert unit.show("ActiveState") == "active"
    assert "10.96.0.1 " in unit.rules()
    assert (unit.show("NRestarts"), unit.show("StatusText")) == ("0", "the rules of all Services are in force")
    process = unit.process
    # Another thread writes the log: the second line may be later than READY=1.
    wait_until(lambda: _count(unit, process, "full sync") == 2, "not one full sync of each family", interval=0.1)


def _count(unit: Service, process: str, words: str) -> int:
    """Return the number of a process's entries that contain some words."""
    return sum(words in str(entry["MESSAGE"]) for entry in unit.entries() if entry["_PID"] == process)


def test_root_may_ask_the_service(running: Service) -> None:
    """The daemon is another user, in the unit's sandbox; other users cannot find it."""
    assert running.container.run("knft", "status").stdout.startswith("knft is ready and all rules are in force\n")
    assert "IPv4: first sync, " in running.container.run("knft", "history").stdout
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    refused = running.container.run(*user, "knft", "status", check=False)
    assert refused.stderr == "knft: only root may ask the running knft: run this command as root\n"


def _uptime(container: SystemdContainer) -> int:
    """Return the monotonic clock, in microseconds."""
    return int(float(container.read("/proc/uptime").split()[0]) * 1_000_000)


def test_processes_have_one_capability(running: Service) -> None:
    user = running.container.run("id", "--user", "knft").stdout.strip()
    process = running.process
    children = running.container.read(f"/proc/{process}/task/{process}/children").split()
    assert children
    for each in (process, *children):
        status = parse_status(running.container.read(f"/proc/{each}/status"))
        assert {status[name] for name in CAPABILITY_SETS} == {NET_ADMIN}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", SECCOMP_FILTER)
        assert status["Uid"].split() == [user] * 4
        environment = running.container.read(f"/proc/{each}/environ")
        assert each == process or "NOTIFY_SOCKET" not in environment
    assert running.show("OOMScoreAdjust") == "-999"


def test_file_system_of_the_service_is_read_only(running: Service) -> None:
    """Also for root: only its temporary directories, and file systems of the kernel, can be written."""
    mounts = parse_mounts(running.container.read(f"/proc/{running.process}/mountinfo"))
    for path in ("/", "/run", "/proc/sys", "/sys"):
        assert mounts[path].is_read_only, path
    assert "hidepid=invisible" in mounts["/proc"].file_system_options
    for folder in ("", "/etc/knft", "/home", "/root", "/run", "/run/lock", "/usr", "/var/lib"):
        inside = ("nsenter", f"--target={running.process}", "--mount", "touch", f"{folder}/new")
        assert "Read-only file system" in running.container.run(*inside, check=False).stderr, folder
    sysctl = ("nsenter", f"--target={running.process}", "--mount", "tee", f"/proc/sys/{CLOSE_WAIT.replace('.', '/')}")
    assert "Read-only file system" in running.container.run(*sysctl, stdin="1", check=False).stderr


def test_credential_is_readable_by_the_service_alone(running: Service) -> None:
    for user, path, status in (("knft", KUBECONFIG, 1), ("nobody", CREDENTIAL, 1), ("knft", CREDENTIAL, 0)):
        command = ("setpriv", f"--reuid={user}", f"--regid={'nogroup' if user == 'nobody' else user}", "--clear-groups")
        found = running.container.run(*command, "cat", path, check=False)
        assert found.returncode == status, (user, path)
        assert (TOKEN in found.stdout) == (status == 0)


def test_entries_of_the_journal_have_priorities(running: Service) -> None:
    """The warning and the errors are from the tests of a missing API server and of changed configurations."""
    assert running.priorities("", "I") == {"6"}
    running.cluster.stop()
    wait_until(lambda: bool(running.priorities("cannot watch", "W")), "no warning was logged", interval=0.2)
    assert running.priorities("", "W") == {"4"}
    assert {entry["_TRANSPORT"] for entry in running.entries() if messages(str(entry["MESSAGE"]), "I")} == {"stdout"}


def test_sandbox_has_what_the_instance_lock_needs(running: Service) -> None:
    refused = running.container.run("knft", "cleanup", check=False)
    assert refused.returncode == 1
    assert "another knft process runs in this network namespace" in refused.stderr


def test_restart_and_stop_keep_the_rules(running: Service) -> None:
    rules, process = running.rules(), running.process
    assert "10.96.0.1 " in rules
    running.container.run("systemctl", "restart", UNIT)
    assert running.process != process
    assert running.rules() == rules
    running.container.run("systemctl", "stop", UNIT)
    assert (running.show("ActiveState"), running.show("Result")) == ("inactive", "success")
    assert running.show("ExecMainStatus") == "0"
    assert running.rules() == rules
    assert running.priorities("knft stopped; its rules stay in the kernel") == {"6"}


def test_changed_configuration_restarts_the_service_and_sets_sysctls(running: Service) -> None:
    """The command before the start reads the same file, as root; the service itself cannot write sysctls."""
    namespace, process, rules = running.container.namespace, running.process, running.rules()
    assert namespace.read_sysctl(CLOSE_WAIT) == "3600"
    text = running.container.read(CONFIGURATION)
    changed = text.replace("tcpCloseWaitTimeout: 1h0m0s", "tcpCloseWaitTimeout: 2h0m0s")
    running.container.write(CONFIGURATION, changed)
    running.wait_restarted(process)
    assert namespace.read_sysctl(CLOSE_WAIT) == "7200"
    assert running.rules() == rules
    assert running.priorities(f"{CONFIGURATION}: the content changed; exiting") == {"3"}
    process = running.process
    running.container.write(CONFIGURATION, f"{text}\nmode: other\n")
    wait_until(lambda: bool(running.priorities("'other' is not a mode")), "the mistake is not logged", interval=0.2)
    assert running.priorities("'other' is not a mode") == {"3"}
    running.container.write(CONFIGURATION, text)
    running.wait_restarted(process)
    assert namespace.read_sysctl(CLOSE_WAIT) == "3600"


def test_watchdog_replaces_a_stopped_process(running: Service) -> None:
    running.override(f"WatchdogSec={WATCHDOG_SECONDS}")
    running.container.run("systemctl", "restart", UNIT)
    process, rules, restarts = running.process, running.rules(), running.number("NRestarts")
    running.container.run("sh", "-c", f"kill -STOP {process}")
    wait_until(lambda: bool(running.priorities("Watchdog timeout")), "the watchdog does not act", interval=0.2)
    assert running.rules() == rules
    running.wait_restarted(process)
    assert running.number("NRestarts") == restarts + 1
    assert running.rules() == rules
    dump = "\n".join(str(entry["MESSAGE"]) for entry in running.entries() if entry["_PID"] == process)
    assert "Fatal Python error: Aborted" in dump.splitlines()
    # Not always the stack of the main thread, the last one: the others go on while Python prints them.
    assert re.search(r"/knft/\w+/\w+\.py\", line \d+ in \w+", dump), dump


def test_drop_in_without_an_api_server_serves_manifests(unit: Service) -> None:
    """That of docs/operations/systemd.md#manifests; there is no kubeconfig."""
    unit.cluster.stop()
    unit.container.run("rm", KUBECONFIG)
    objects = [
        found for kind in ("services", "endpointslices") for found in unit.cluster.objects.objects[kind].values()
    ]
    manifest = {"apiVersion": "v1", "kind": "List", "items": objects}
    unit.container.write("/etc/knft/manifests/web.json", json.dumps(manifest))
    (drop_in,) = code_blocks("manifests")
    with used_drop_in(unit, drop_in):
        unit.container.run("systemctl", "start", UNIT)
        assert unit.show("ActiveState") == "active"
        assert "10.96.0.1 " in unit.rules()


def test_example_for_k3s_starts_the_service(unit: Service, tmp_path: Path) -> None:
    """With files at k3s's paths, and an API server that requires their certificate; k3s itself is not there."""
    kubeconfig, drop_in = code_blocks("k3s")
    authority = CertificateAuthority(tmp_path, "k3s")
    signed = authority.sign("kube-proxy")
    files = {"ca.crt": authority.path, "client.crt": signed.certificate, "client.key": signed.key}
    paths = dict(re.findall(r"^LoadCredential=(.+):(.+)$", drop_in, re.MULTILINE))
    assert paths.keys() == files.keys()
    for name, path in paths.items():
        unit.container.write(path, files[name].read_text(), 0o600)
    unit.container.write(KUBECONFIG, kubeconfig, 0o600)
    with unit.container.namespace.entered():
        server = FakeApiServer(unit.cluster.objects, port=6444, tls=authority.server(asks_clients=True))
    with server, used_drop_in(unit, drop_in):
        unit.container.run("systemctl", "start", UNIT)
        assert unit.show("ActiveState") == "active"
        assert "10.96.0.1 " in unit.rules()


def test_kubeconfig_at_another_path_names_a_token_in_a_file(unit: Service) -> None:
    """In the way of docs/operations/systemd.md#credentials."""
    kubeconfig, token = "/etc/cluster/kubeconfig", "/etc/knft/token"
    unit.container.write(token, TOKEN, 0o640)
    unit.container.run("chgrp", "knft", token)
    users = [{"name": "knft", "user": {"tokenFile": token}}]
    unit.container.write(kubeconfig, json.dumps({**unit.cluster.kubeconfig, "users": users}), 0o600)
    unit.container.run("rm", KUBECONFIG)
    with used_drop_in(unit, f"[Service]\nLoadCredential=kubeconfig:{kubeconfig}\n"):
        unit.start()
        assert "10.96.0.1 " in unit.rules()
