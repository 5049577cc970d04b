"""The command line: help, version, one-line errors with exit status 2, and missing privileges or kernel features."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest

from knft import __version__
from knft.cli.commands import cli
from knft.errors import KernelError, UnsupportedError
from knft.kernel.probe import probe
from knft.kernel.worker_messages import SetPart
from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace
from tests.support.log_lines import messages
from tests.support.nft_process import library_in

NODE = ("--node", "node-1")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def knft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run knft; the command needs no privilege."""
    return subprocess.run([*KNFT, *arguments], capture_output=True, text=True, check=False)


def test_help_describes_each_command_in_one_line() -> None:
    done = knft("--help")
    assert done.returncode == 0
    for command in cli.commands:
        (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [command]]
        assert line.endswith(".")


def test_help_does_not_import_heavy_modules() -> None:
    """These imports would make it slow; the time itself is not asserted."""
    heavy = {"msgspec", "yaml", "nftables", "pyroute2", "watchfiles", "jsonschema", "asyncio"}
    code = f"import sys, knft.cli.main; sys.exit(', '.join({heavy!r} & set(sys.modules)) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", cli.commands)
def test_every_command_has_help(command: str) -> None:
    done = knft(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")
    # Only names and choices that cannot be broken are longer than a line of a terminal.
    assert all(len(line) <= 80 or len(line.split()) <= 2 for line in done.stdout.splitlines())


@pytest.mark.parametrize("command", sorted(cli.commands.keys() - {"run"}))
def test_every_command_prints_json(command: str) -> None:
    """Except ``knft run``, which logs JSON with --logging-format=json."""
    (choice,) = [each.type for each in cli.commands[command].params if "-o" in each.opts]
    assert isinstance(choice, click.Choice)
    assert "json" in choice.choices


def test_render_help_describes_kube_proxys_modes() -> None:
    sentence = "in mode iptables or ipvs the default is all; `render` accepts localhost for them too."
    help_texts = {command: " ".join(knft(command, "--help").stdout.split()) for command in ("run", "render")}
    assert {command: sentence in text for command, text in help_texts.items()} == {"run": False, "render": True}
    assert "Endpoints are selected as in the newest version" in help_texts["render"]


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--version"]])
def test_version_flag_prints_the_version(arguments: list[str]) -> None:
    done = knft(*arguments)
    assert (done.returncode, done.stdout) == (0, f"knft {__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["render", "-f", "-"], "Missing option '--node'"),
        (["render", *NODE], "Missing option '-f'"),
        (["run", *NODE], "no API server configured: KUBERNETES_SERVICE_HOST is not set, so this is not a pod"),
        (["run", "--manifests", "."], "--node: it is required with --manifests"),
        (["render", "-f", "-", "--node", " "], "--node: the name is empty"),
        (["render", "-f", "-", *NODE, "--node-ip", "10.0.0"], "--node-ip: '10.0.0' is not an IP address"),
        (["render", "-f", "-", *NODE, "--node-ip", "::1,::2"], "--node-ip: two IPv6 values, ::1 and ::2"),
        (["render", "-f", "-", *NODE, "--cluster-cidr", "10.0.0.0/33"], "--cluster-cidr: '10.0.0.0/33' is not a CIDR"),
        (["render", "-f", "-", *NODE, "--service-cidr", "x"], "--service-cidr: 'x' is not a CIDR"),
        (["render", "-f", "-", *NODE, "--nodeport-addresses", "localhost"], "only with the feature gate"),
        (["render", "-f", "-", *NODE, "--nodeport-addresses", "prim"], "--nodeport-addresses: 'prim' is not a CIDR"),
        (["render", "-f", "-", *NODE, "--masquerade-bit", "32"], "32 is not in the range"),
        (["render", "-f", "-", *NODE, "-o", "xml"], "'xml' is not one of"),
        (["run", "--manifests", ".", *NODE, "--sync-period", "soon"], "--sync-period: 'soon' is not a duration"),
        (["run", "--manifests", ".", *NODE, "--sync-period", "10000000h"], "--sync-period: '10000000h' is longer than"),
        (["run", "--manifests", ".", *NODE, "--min-sync-period", "1m"], "not less than --min-sync-period"),
        (["run", "--manifests", "/nonexistent", *NODE], "/nonexistent: cannot read the manifest directory"),
        (["run", "--manifests", "/etc/hostname", *NODE], "cannot read the manifest directory"),
        (["render", "-f", "/nonexistent", *NODE], "/nonexistent: No such file or directory"),
        (["cleanup", "--kube-proxy", "ebpf"], "'ebpf' is not one of 'iptables', 'ipvs', 'nftables', 'all'"),
        (["frobnicate"], "No such command 'frobnicate'"),
    ],
)
def test_invalid_argument_exits_with_status_2(arguments: list[str], message: str) -> None:
    """The error says what is wrong and where; standard output stays empty, and there is no traceback."""
    done = subprocess.run([*KNFT, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernel
@pytest.mark.parametrize(
    "command", [["cleanup"], ["cleanup", "--kube-proxy", "all"], ["run", "--once", "--manifests", ".", *NODE]]
)
def test_missing_capability_is_an_error(command: list[str]) -> None:
    """Without CAP_NET_ADMIN the exit status is 2, and one line says what to do."""
    capsh = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]
    done = subprocess.run([*capsh, *KNFT, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "knft: CAP_NET_ADMIN is missing: run knft as root, or give its container that capability\n"


@pytest.mark.kernel
def test_missing_library_is_an_error(tmp_path: Path) -> None:
    """A mount namespace hides libnftables from the process."""
    library = next(Path(line.split()[-1]) for line in _loaded_libraries() if "libnftables.so" in line)
    empty = tmp_path / "empty"
    empty.touch()
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(empty), str(library), *KNFT, "cleanup"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("knft: cannot load libnftables (")
    assert "install the package libnftables1" in done.stderr
    assert done.stderr.count("\n") == 1


def _loaded_libraries() -> list[str]:
    code = "import nftables; nftables.Nftables(); print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_unwritable_output_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*KNFT, "version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "knft: cannot write the output: No space left on device\n")


def _run_in_shell(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", script, "bash", *KNFT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("stream", [0, 2])
def test_closed_standard_streams_are_accepted(stream: int) -> None:
    """``knft diff`` asks whether standard error is a terminal."""
    arguments = ("diff", "-f", str(EXAMPLES), *NODE)
    done = _run_in_shell(f'exec {stream}>&-; exec "$@"', *arguments)
    expected = knft(*arguments)
    assert done.returncode == expected.returncode
    assert _without_time(done.stdout) == _without_time(expected.stdout)
    assert done.stderr == ("" if stream == 2 else expected.stderr)


def _without_time(report: str) -> str:
    """Return a report without its time: the two runs may be in different minutes."""
    text, count = re.subn(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "(time)", report)
    assert count == 1
    return text


@pytest.mark.parametrize("command", ["render", "diff"])
def test_closed_standard_output_is_an_error(command: str) -> None:
    done = _run_in_shell('exec "$@" >&-', command, "-f", str(EXAMPLES), *NODE)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "knft: cannot write the output: Bad file descriptor\n"


@pytest.mark.parametrize("both_streams", [False, True], ids=["output", "output and errors"])
def test_exited_reader_of_the_output_ends_the_command_by_sigpipe(*, both_streams: bool) -> None:
    """As it ends cat or kubectl: a shell reports status 141, and no message appears."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        errors = pipe if both_streams else subprocess.PIPE
        command = [*KNFT, "render", "-f", str(EXAMPLES), *NODE]
        done = subprocess.run(command, stdout=pipe, stderr=errors, text=True, check=False)
    assert (done.returncode, done.stderr or "") == (-signal.SIGPIPE, "")


def test_closed_standard_input_cannot_be_read() -> None:
    command = ["sh", "-c", 'exec 0<&-; exec "$@"', "sh", *KNFT, "render", "-f", "-", *NODE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "knft: -: standard input is closed\n")


class _KernelWithoutFeature:
    """A kernel that refuses commands with one keyword; the real kernel cannot be made to do that."""

    def __init__(self, keyword: str) -> None:
        self._keyword = keyword
        self.runs = 0

    def run(self, commands: str, *, terse: bool = False) -> str:
        del terse
        self.runs += 1
        if self._keyword in commands:
            msg = "libnftables: Error: Could not process rule: No such file or directory"
            raise KernelError(msg, msg)
        return ""

    def dump_elements(self, family: int, table: str, names: Sequence[str], receive: Callable[[SetPart], None]) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("feature", ["numgen", "fib", "reject"])
def test_missing_kernel_feature_error_names_the_feature(feature: str) -> None:
    """It also names the kernel option of the feature."""
    with pytest.raises(
        UnsupportedError, match=rf"does not support {feature}: use a kernel with CONFIG_NFT_{feature.upper()}"
    ):
        probe(_KernelWithoutFeature(feature))


def test_kernel_that_accepts_each_feature_is_supported() -> None:
    """It may refuse the transaction with all features for lack of memory."""
    kernel = _KernelWithoutFeature("numgen random mod 2 0\n}\nchain")
    probe(kernel)
    assert kernel.runs == 1 + 2 * 5


@pytest.mark.kernel
def test_probe_leaves_no_tables() -> None:
    namespace = Namespace.create("probe")
    probe(library_in(namespace))
    assert namespace.run(["nft", "list", "ruleset"]).stdout == ""
    namespace.close()


@pytest.mark.kernel
def test_failed_sync_with_once_exits_with_status_1(tmp_path: Path) -> None:
    """Another process owns the table ip knft, so the kernel refuses changes; the IPv6 table is written."""
    namespace = Namespace.create("owned")
    library_in(namespace).run("table ip knft { flags owner; }")
    (tmp_path / "service.yaml").write_text("")
    done = namespace.run([*KNFT, "run", "--once", "--manifests", str(tmp_path), *NODE], check=False)
    assert done.returncode == 1
    assert any(message.startswith("IPv4: sync failed: ") for message in messages(done.stderr, "E"))
    assert "Traceback" not in done.stderr
    assert namespace.run(["nft", "list", "tables"]).stdout == "table ip knft\ntable ip6 knft\n"
    namespace.close()


@pytest.mark.kernel
@pytest.mark.parametrize("arguments", [["cleanup"], ["run", "--cleanup"]])
def test_cleanup_removes_the_other_table_after_a_failure(arguments: list[str]) -> None:
    namespace = Namespace.create("cleanup-owned")
    library_in(namespace).run("table ip knft { flags owner; }; table ip6 knft")
    done = namespace.run([*KNFT, *arguments], check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("table ip6 knft: removed\n")
    assert done.stderr.startswith("knft: cannot remove table ip knft: table ip knft is owned by another process: ")
    assert namespace.run(["nft", "list", "tables"]).stdout == "table ip knft\n"
    namespace.close()


@pytest.mark.kernel
def test_cleanup_removes_only_knfts_tables() -> None:
    """Tables of other programs stay, also one with knft's name in another family."""
    namespace = Namespace.create("cleanup")
    foreign = "table inet knft {\n}\ntable ip kube-proxy {\n\tset s {\n\t\ttype ipv4_addr\n\t}\n}\n"
    namespace.run(["nft", "-f", "-"], stdin=foreign)
    before = namespace.run(["nft", "list", "ruleset"]).stdout
    namespace.run([*KNFT, "run", "--once", "--manifests", str(EXAMPLES), *NODE])
    assert before != namespace.run(["nft", "list", "ruleset"]).stdout

    first = namespace.run([*KNFT, "cleanup"]).stdout
    assert first == "table ip knft: removed\ntable ip6 knft: removed\n"
    assert before == namespace.run(["nft", "list", "ruleset"]).stdout
    second = namespace.run([*KNFT, "cleanup"]).stdout
    assert second == "table ip knft: not found\ntable ip6 knft: not found\n"
    namespace.close()


@pytest.mark.kernel
@pytest.mark.parametrize("arguments", [["cleanup"], ["run", "--cleanup"], ["cleanup", "--kube-proxy", "nftables"]])
@pytest.mark.parametrize("output", ["| true", "> /dev/full", ">&-"])
def test_cleanup_removes_everything_though_its_output_cannot_be_written(arguments: list[str], output: str) -> None:
    """The failure is reported at the end, except of a pipe whose reader has exited."""
    namespace = Namespace.create("cleanup-output")
    name = "kube-proxy" if "--kube-proxy" in arguments else "knft"
    for family in ("ip", "ip6"):
        namespace.run(["nft", "add", "table", family, name])
    done = namespace.run(["bash", "-c", f'"$@" {output}', "bash", *KNFT, *arguments], check=False)
    assert namespace.run(["nft", "list", "tables"]).stdout == ""
    reasons = {"> /dev/full": "No space left on device", ">&-": "Bad file descriptor"}
    if output in reasons:
        assert done.returncode == 1
        assert done.stderr.endswith(f"knft: cannot write the output: {reasons[output]}\n")
    namespace.close()


def test_console_script_is_installed() -> None:
    script = shutil.which("knft", path=str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"])
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert done.stdout == f"knft {__version__}\n"


CAPTURE = "kubectl get nodes,services,endpointslices,servicecidrs -A -o yaml"


def _reads_objects(command: click.Command) -> bool:
    return not {"--filename", "--manifests"}.isdisjoint(flag for param in command.params for flag in param.opts)


@pytest.mark.parametrize("command", [name for name, each in cli.commands.items() if _reads_objects(each)])
def test_help_says_how_to_capture_objects(command: str) -> None:
    lines = [line.strip() for line in knft(command, "--help").stdout.splitlines()]
    assert {CAPTURE, f"{CAPTURE} > now.yaml"} & set(lines)


def test_commands_that_read_objects_are_known() -> None:
    """Guards the test above."""
    found = {name for name, command in cli.commands.items() if _reads_objects(command)}
    assert found == {"run", "render", "diff", "trace", "explain", "preflight", "lint"}


def test_help_says_that_manifests_disable_health_checks_and_metrics() -> None:
    text = " ".join(knft("run", "--help").stdout.split())
    assert text.count("with --manifests it is disabled unless the flag is given") == 2
    assert (
        "--manifests DIR Directory of YAML and JSON manifests to watch, instead of an API server; health checks "
        in text
    )


@pytest.mark.parametrize("columns", ["80", "200"])
@pytest.mark.parametrize("command", sorted(cli.commands))
def test_help_fits_the_terminal(command: str, columns: str) -> None:
    done = subprocess.run(
        [*KNFT, command, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": columns}
    )
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
