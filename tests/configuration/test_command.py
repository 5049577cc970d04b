"""``knft run`` with a configuration file, as a process: what it serves, how it ends, and files that cannot be read."""

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knft.configuration.file_content import MAX_BYTES
from tests.configuration.loading import KUBEADM, config
from tests.support import special_files
from tests.support.bad_manifests import service, text
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.library_process import library_in

HANG = 60.0
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _missing(_: Path) -> None:
    """Make nothing."""


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)


def _holds(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


FIELD = "KubeProxyConfiguration"
LAUGHS = "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'ha'] * 10)}]\n" for level in range(12)
)
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (_missing, "No such file or directory"),
    "a directory": (special_files.directory, "it is a directory, not a regular file"),
    "a FIFO": (special_files.fifo, "it is a FIFO, not a regular file"),
    "a socket": (special_files.unix_socket, "it is a socket, not a regular file"),
    "a device without end": (special_files.device, "it is a device, not a regular file"),
    "huge": (_huge, f"it has {MAX_BYTES + 1} bytes; the limit is {MAX_BYTES}"),
    "empty": (_holds(""), f"the file is empty; it must be a {FIELD} (kubeproxy.config.k8s.io/v1alpha1)"),
    "junk": (_holds(b"\x7fELF\x00\x01"), "not YAML: byte 1: control characters are not allowed (is it UTF-8 text?)"),
    "a bomb": (_holds(LAUGHS), "not YAML: line 6, column 10: aliases expand to more than 200000 values"),
    "a wrong type": (
        _holds(config("iptables: {masqueradeBit: '14'}")),
        f"{FIELD}.iptables.masqueradeBit: it is text, '14', but must be a whole number",
    ),
    "an unknown version": (
        _holds(config().replace("v1alpha1", "v1")),
        "apiVersion is 'kubeproxy.config.k8s.io/v1', but must be kubeproxy.config.k8s.io/v1alpha1",
    ),
    "a bridge that nobody names": (
        _holds(config("detectLocalMode: BridgeInterface\nnodePortAddresses: [primary]")),
        f"{FIELD}.detectLocal.bridgeInterface: it is required with {FIELD}.detectLocalMode BridgeInterface",
    ),
}


@pytest.mark.parametrize("form", FILES)
def test_a_file_that_cannot_be_meant_is_one_line_and_status_2(tmp_path: Path, form: str) -> None:
    make, said = FILES[form]
    path = tmp_path / "config.conf"
    make(path)
    done = subprocess.run([*KNFT, "run", f"--config={path}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"knft: {path}: {said}\n"


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "config.conf"
    path.write_text(config())
    path.chmod(0)
    dropped = "-dac_override,-dac_read_search"
    unprivileged = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"]
    command = [*unprivileged, *KNFT, "run", f"--config={path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"knft: {path}: Permission denied\n")


def test_the_name_of_a_file_stays_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb"
    done = subprocess.run([*KNFT, "run", f"--config={path}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"knft: {str(path)!r}: No such file or directory\n")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("configuration")
    yield made
    made.close()


@pytest.mark.kernel
def test_a_file_says_what_rules_there_are(namespace: Namespace, tmp_path: Path) -> None:
    """The mark's bit is in the rules; a node IP, knft's own flag, beside the file."""
    path = tmp_path / "config.conf"
    path.write_text(KUBEADM.read_text().replace("masqueradeBit: null", "masqueradeBit: 21", 1))
    flags = (f"--config={path}", "--hostname-override=node-1", "--once", f"--manifests={EXAMPLES}")
    done = namespace.run([*KNFT, "run", *flags], check=False)
    assert done.returncode == 0, done.stderr
    listed = namespace.run(["nft", "list", "ruleset"]).stdout
    assert "0x00200000" in listed
    assert "0x00004000" not in listed


class _Run:
    """A process of knft that follows manifests, and what it says."""

    def __init__(self, namespace: Namespace, *flags: str) -> None:
        self.process = namespace.popen([*KNFT, "run", *flags], stderr=subprocess.PIPE)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self._lines.put(line)

    def says(self, end: str) -> str:
        """Wait for a line that ends so."""
        seen: list[str] = []
        deadline = time.monotonic() + HANG
        while not any(line.endswith(f"{end}\n") for line in seen[-1:]):
            try:
                seen.append(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                pytest.fail(f"it never said {end!r}, but: {''.join(seen)}")
        return seen[-1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.kernel
def test_a_file_that_changes_ends_knft_with_status_1(namespace: Namespace, tmp_path: Path) -> None:
    """Its rules stay; touching the file before does nothing."""
    path, manifests = tmp_path / "config.conf", tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "web.yaml").write_text(text(service("web", 5)))
    path.write_text(config("nodePortAddresses: [primary]\niptables: {minSyncPeriod: 1ns}"))
    knft = _Run(namespace, f"--config={path}", "--node=node-1", f"--manifests={manifests}", "-v=2")
    try:
        _wait_for(namespace, "10.96.0.5")
        path.touch()
        (manifests / "api.yaml").write_text(text(service("api", 6)))
        _wait_for(namespace, "10.96.0.6")
        path.write_text(path.read_text() + "\n")
        said = knft.says("content of the proxy server's configuration file was updated")
        assert said == "knft: content of the proxy server's configuration file was updated\n"
        assert knft.process.wait(HANG) == 1
        _wait_for(namespace, "10.96.0.6")
    finally:
        knft.close()


def _wait_for(namespace: Namespace, address: str) -> None:
    deadline = time.monotonic() + HANG
    while address not in namespace.run(["nft", "list", "ruleset"]).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.kernel
def test_cleanup_removes_knfts_tables_and_kube_proxys(namespace: Namespace) -> None:
    namespace.run([*KNFT, "run", "--once", "--manifests", str(EXAMPLES), "--node", "node-1"])
    foreign = "table ip kube-proxy {\n}\ntable ip6 kube-proxy {\n}\ntable inet other {\n}\n"
    namespace.run(["nft", "-f", "-"], stdin=foreign)
    rules = "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"
    namespace.run(["iptables-nft-restore", "--noflush"], stdin=rules)
    done = namespace.run([*KNFT, "run", "--cleanup", "--proxy-mode=nftables"])
    assert "table ip knft: removed\ntable ip6 knft: removed\n" in done.stdout
    assert "table ip kube-proxy: removed\ntable ip6 kube-proxy: removed\n" in done.stdout
    left = namespace.run(["nft", "list", "ruleset"]).stdout
    assert "knft" not in left
    assert "KUBE-" not in left
    assert "table inet other" in left


@pytest.mark.kernel
def test_cleanup_that_fails_is_status_1_and_the_rest_is_removed(namespace: Namespace) -> None:
    """A table of knft's name belongs to another process."""
    library_in(namespace).run("table ip knft { flags owner; }")
    namespace.run(["nft", "add", "table", "ip6", "kube-proxy"])
    done = namespace.run([*KNFT, "run", "--cleanup"], check=False)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    error = "encountered an error while tearing down rules: could not remove all of knft's tables, see above"
    assert last == f"knft: {error}"
    assert "table ip6 kube-proxy: removed" in done.stdout


def test_without_manifests_the_api_server_is_asked_for() -> None:
    """As kube-proxy does, whose file says where."""
    command = [*KNFT, "run", f"--config={KUBEADM}", "--hostname-override=node-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("knft: kubeconfig /var/lib/kube-proxy/kubeconfig.conf: No such file")
