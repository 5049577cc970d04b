"""``knft run --config`` as a process: unreadable files, the rules of a file, a changed file, and --cleanup."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knft.configuration.file_content import MAX_BYTES
from tests.support import special_files
from tests.support.bad_manifests import service, text
from tests.support.followed_process import FollowedProcess
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.loaded_settings import KUBEADM, config_text
from tests.support.nft_process import library_in
from tests.support.waiting import wait_until

TIMEOUT = 60.0
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _missing(_: Path) -> None:
    """Make no file."""


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)


def _writes(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


KIND = "KubeProxyConfiguration"
BILLION_LAUGHS = "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}' if level else 'ha'] * 10)}]\n" for level in range(12)
)
INVALID_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (_missing, "No such file or directory"),
    "a directory": (special_files.directory, "it is a directory, not a regular file"),
    "a FIFO": (special_files.fifo, "it is a FIFO, not a regular file"),
    "a socket": (special_files.unix_socket, "it is a socket, not a regular file"),
    "a device": (special_files.device, "it is a device, not a regular file"),
    "huge": (_huge, f"it has {MAX_BYTES + 1} bytes; the limit is {MAX_BYTES}"),
    "empty": (_writes(""), f"the file is empty; it must be a {KIND} (kubeproxy.config.k8s.io/v1alpha1)"),
    "binary data": (
        _writes(b"\x7fELF\x00\x01"),
        "not YAML: byte 1: control characters are not allowed; expected UTF-8 text",
    ),
    "expanding aliases": (
        _writes(BILLION_LAUGHS),
        "not YAML: line 6, column 10: aliases expand to more than 200000 values",
    ),
    "a wrong type": (
        _writes(config_text("iptables: {masqueradeBit: '14'}")),
        f"{KIND}.iptables.masqueradeBit: it is text, '14', but must be a whole number",
    ),
    "an unknown version": (
        _writes(config_text().replace("v1alpha1", "v1")),
        "apiVersion is 'kubeproxy.config.k8s.io/v1', but must be kubeproxy.config.k8s.io/v1alpha1",
    ),
    "a missing bridge name": (
        _writes(config_text("detectLocalMode: BridgeInterface\nnodePortAddresses: [primary]")),
        f"{KIND}.detectLocal.bridgeInterface: it is required with {KIND}.detectLocalMode BridgeInterface",
    ),
}


@pytest.mark.parametrize("form", INVALID_FILES)
def test_invalid_file_is_a_one_line_error_with_status_2(tmp_path: Path, form: str) -> None:
    make, message = INVALID_FILES[form]
    path = tmp_path / "config.conf"
    make(path)
    done = subprocess.run([*KNFT, "run", f"--config={path}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"knft: {path}: {message}\n"


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config.conf"
    path.write_text(config_text())
    path.chmod(0)
    capabilities = "-dac_override,-dac_read_search"
    unprivileged = ["setpriv", f"--bounding-set={capabilities}", f"--inh-caps={capabilities}"]
    command = [*unprivileged, *KNFT, "run", f"--config={path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"knft: {path}: Permission denied\n")


def test_newline_in_file_name_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a\nb"
    done = subprocess.run([*KNFT, "run", f"--config={path}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"knft: {str(path)!r}: No such file or directory\n")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    new = Namespace.create("configuration")
    yield new
    new.close()


@pytest.mark.kernel
def test_masquerade_bit_of_the_file_is_in_the_rules(namespace: Namespace, tmp_path: Path) -> None:
    """Flags of knft's own apply together with the file."""
    path = tmp_path / "config.conf"
    path.write_text(KUBEADM.read_text().replace("masqueradeBit: null", "masqueradeBit: 21", 1))
    flags = (f"--config={path}", "--hostname-override=node-1", "--once", f"--manifests={EXAMPLES}")
    done = namespace.run([*KNFT, "run", *flags], check=False)
    assert done.returncode == 0, done.stderr
    listed = namespace.run(["nft", "list", "ruleset"]).stdout
    assert "0x00200000" in listed
    assert "0x00004000" not in listed


@pytest.mark.kernel
def test_changed_file_exits_with_status_1_and_rules_stay(namespace: Namespace, tmp_path: Path) -> None:
    """A new modification time without new content does not end knft."""
    path, manifests = tmp_path / "config.conf", tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "web.yaml").write_text(text(service("web", 5)))
    path.write_text(config_text("nodePortAddresses: [primary]\niptables: {minSyncPeriod: 1ns}"))
    flags = ("--node=node-1", f"--manifests={manifests}", "-v=2")
    knft = FollowedProcess(namespace, [*KNFT, "run", f"--config={path}", *flags])
    try:
        _wait_for(namespace, "10.96.0.5")
        path.touch()
        (manifests / "api.yaml").write_text(text(service("api", 6)))
        _wait_for(namespace, "10.96.0.6")
        path.write_text(path.read_text() + "\n")
        line = knft.wait_for_line("restarted with the new configuration")
        assert line == f"knft: {path}: the content changed; exiting, to be restarted with the new configuration\n"
        assert knft.process.wait(TIMEOUT) == 1
        _wait_for(namespace, "10.96.0.6")
    finally:
        knft.kill()


def _wait_for(namespace: Namespace, address: str) -> None:
    wait_until(lambda: address in namespace.run(["nft", "list", "ruleset"]).stdout, f"no rule has {address}")


@pytest.mark.kernel
def test_cleanup_flag_removes_knfts_tables_and_kube_proxys_leftovers(namespace: Namespace) -> None:
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
def test_failed_cleanup_exits_with_status_1_and_removes_the_rest(namespace: Namespace) -> None:
    """Another process owns the table ip knft."""
    library_in(namespace).run("table ip knft { flags owner; }")
    namespace.run(["nft", "add", "table", "ip6", "kube-proxy"])
    done = namespace.run([*KNFT, "run", "--cleanup"], check=False)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    error = "cannot remove all of knft's tables: 1 failure, see above; run the command again"
    assert last == f"knft: {error}"
    assert "table ip6 kube-proxy: removed" in done.stdout


def test_api_server_is_used_if_there_are_no_manifests() -> None:
    """As in kube-proxy, the file names the kubeconfig."""
    command = [*KNFT, "run", f"--config={KUBEADM}", "--hostname-override=node-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("knft: kubeconfig /var/lib/kube-proxy/kubeconfig.conf: No such file")
