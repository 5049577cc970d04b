"""``knft completion``: real shells complete commands, flags, values and file names with its scripts."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from knft.cli.commands import SHELLS, cli
from tests.support.command_schemas import validated
from tests.support.interactive_shell import PROMPT, InteractiveShell

KILL_LINE = "\x15"
ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "TERM": "vt100",
}
COMPLETED = {
    "ru": ["run"],
    "run --proxy-m": ["run", "--proxy-mode"],
    "run --proxy-mode nf": ["run", "--proxy-mode", "nftables"],
    "run --proxy-mode=nf": ["run", "--proxy-mode=nftables"],
    "run --once --proxy-mode=ipv": ["run", "--once", "--proxy-mode=ipvs"],
    "run --once=f": ["run", "--once=false"],
    "run --logging-format j": ["run", "--logging-format", "json"],
    "run --detect-local-mode=Br": ["run", "--detect-local-mode=BridgeInterface"],
    "run --healthz-bind-address 0.0.0.0:1 --proxy-mode=nf": [
        "run", "--healthz-bind-address", "0.0.0.0:1", "--proxy-mode=nftables",
    ],
    "run --config conf": ["run", "--config", "config.yaml"],
    "run --config=conf": ["run", "--config=config.yaml"],
    "run --manifests man": ["run", "--manifests", "manifests/"],
    "run --manifests=man": ["run", "--manifests=manifests/"],
    "diff --against ipv": ["diff", "--against", "ipvs"],
    "diff -f my": ["diff", "-f", "my file.yaml"],
    "explain web --source d": ["explain", "web", "--source", "daemon"],
    "explain web --filename my": ["explain", "web", "--filename", "my file.yaml"],
    "preflight --config conf": ["preflight", "--config", "config.yaml"],
    "lint --against my": ["lint", "--against", "my file.yaml"],
    "trace --nft-json cap": ["trace", "--nft-json", "captured.json"],
    "render --backend ipvs --existing-ipvs cap": [
        "render", "--backend", "ipvs", "--existing-ipvs", "captured.json",
    ],
    "cleanup --kube-proxy a": ["cleanup", "--kube-proxy", "all"],
    "status -o j": ["status", "-o", "json"],
    "history web -o j": ["history", "web", "-o", "json"],
    "completion fi": ["completion", "fish"],
    "completion fish -o j": ["completion", "fish", "-o", "json"],
    "version -o j": ["version", "-o", "json"],
}  # fmt: skip
"""Words after "knft", and what the Tab key makes of them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files and a directory for names to complete."""
    found = tmp_path_factory.mktemp("files")
    for name in ("config.yaml", "captured.json", "my file.yaml", "manual.txt"):
        (found / name).touch()
    (found / "manifests").mkdir()
    return found


@cache
def script(shell: str, *flags: str) -> str:
    command = [sys.executable, "-m", "knft", "completion", shell, *flags]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def bash(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    startup = tmp_path_factory.mktemp("bash") / "startup"
    startup.write_text(f"{script('bash')}\nPS1='{PROMPT}'\nbind 'set enable-bracketed-paste off'\n")
    with InteractiveShell(["bash", "--noprofile", "--rcfile", str(startup), "-i"], ENVIRONMENT, folder) as shell:
        yield shell


@contextlib.contextmanager
def zsh_with(configuration: str, startup: Path, folder: Path) -> Iterator[InteractiveShell]:
    """Yield a zsh that reads its configuration in the folder ``startup``."""
    lines = (configuration, "bindkey -e", f"PS1='{PROMPT}'")
    (startup / ".zshrc").write_text("\n".join(lines))
    environment = {**ENVIRONMENT, "ZDOTDIR": str(startup)}
    with InteractiveShell(["zsh", "-d", "-i"], environment, folder) as shell:
        yield shell


@pytest.fixture(scope="module")
def zsh(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    """Return a zsh that has evaluated the script."""
    configuration = f"autoload -U compinit; compinit -u -D\n{script('zsh')}"
    with zsh_with(configuration, tmp_path_factory.mktemp("zsh"), folder) as shell:
        yield shell


@pytest.fixture(scope="module")
def fish(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Return a function that returns fish's completions of a line; fish loads the script itself."""
    home = tmp_path_factory.mktemp("fish")
    (home / "fish/completions").mkdir(parents=True)
    (home / "fish/completions/knft.fish").write_text(script("fish"))
    environment = {**ENVIRONMENT, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}

    def complete(line: str) -> list[str]:
        command = ["fish", "--command", "complete --do-complete=$argv[1]", line]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, cwd=folder)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return complete


@pytest.mark.parametrize("line", COMPLETED)
def test_bash_completes_words(bash: InteractiveShell, line: str) -> None:
    assert bash.words(f"knft {line}\t") == ["knft", *COMPLETED[line]]


BASH_NAMES = """
names() { declare -F; compgen -v | grep -v -e '^BASH_' -e '^COMP' -e ^FUNCNAME -e ^PIPESTATUS -e ^_ -e ^before; }
before=$(names)
eval "$1"
complete -p
COMP_WORDS=(knft diff --against "") COMP_CWORD=3
_knft_completion knft
echo "${COMPREPLY[*]}"
diff <(echo "$before") <(names)
"""


def test_bash_script_leaves_one_function_and_no_variables() -> None:
    """Beside bash's own variables for completion."""
    command = ("bash", "--norc", "-c", BASH_NAMES, "bash", script("bash"))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.stderr == ""
    completion, replies, *differences = done.stdout.splitlines()
    assert completion == "complete -o nosort -F _knft_completion knft"
    assert replies == "iptables ipvs nftables"
    changed = [line for line in differences if line[0] in "<>"]
    assert changed == ["> declare -f _knft_completion"]


@pytest.mark.parametrize("line", COMPLETED)
def test_zsh_completes_words(zsh: InteractiveShell, line: str) -> None:
    """zsh removes the slash after a directory's name when the next character is typed."""
    assert zsh.words(f"knft {line}\t") == ["knft", *(word.rstrip("/") for word in COMPLETED[line])]


def test_zsh_loads_the_script_from_a_folder_of_functions(folder: Path, tmp_path: Path) -> None:
    """The first completion loads it; click's own script loses the second one."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions/_knft").write_text(script("zsh"))
    configuration = f"fpath=({tmp_path}/functions $fpath)\nautoload -U compinit; compinit -u -D"
    with zsh_with(configuration, tmp_path, folder) as shell:
        for _ in range(3):
            assert shell.words("knft run --proxy-mode=nf\t") == ["knft", "run", "--proxy-mode=nftables"]


@pytest.mark.parametrize("line", COMPLETED)
def test_fish_completes_words(fish: Callable[[str], list[str]], line: str) -> None:
    completions = [completion.partition("\t")[0] for completion in fish(f"knft {line}")]
    assert completions == [COMPLETED[line][-1]]


def test_shells_list_all_commands(
    bash: InteractiveShell, zsh: InteractiveShell, fish: Callable[[str], list[str]]
) -> None:
    assert fish("knft ") == [f"{name}\t{cli.commands[name].short_help}" for name in sorted(cli.commands)]
    for shell in (bash, zsh):
        shell.press("knft \t\t")
        shell.wait_for(*cli.commands)
        shell.press(f"{KILL_LINE}\r")
        shell.wait_for(PROMPT)


def test_zsh_and_fish_describe_flags(zsh: InteractiveShell, fish: Callable[[str], list[str]]) -> None:
    """A description with a comma is complete."""
    described = {
        "--ipset-save": "Output of ipset save on that node, if rules use ipsets.",
        "--ipvsadm-save": "Output of ipvsadm -Sn on that node, for mode ipvs.",
    }
    assert {f"{flag}\t{text}" for flag, text in described.items()} <= set(fish("knft diff --ip"))
    zsh.press("knft diff --ip\t\t")
    zsh.wait_for(*described, *described.values())
    zsh.press(f"{KILL_LINE}\r")
    zsh.wait_for(PROMPT)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_hidden_flags_and_used_flags_are_not_proposed(shell: str) -> None:
    """kube-proxy's ignored flags are hidden, and a flag with one value is not proposed twice."""
    proposed = _proposed(shell, "run --once --")
    assert "--proxy-mode" in proposed
    assert "--once" not in proposed
    assert "--vmodule" not in proposed


def _proposed(shell: str, line: str) -> str:
    words = f"knft {line}"
    current = line.rsplit(maxsplit=1)[-1] if shell == "fish" else str(len(line.split()))
    variables = {"_KNFT_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": current}
    command = [sys.executable, "-m", "knft"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**ENVIRONMENT, **variables})
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_json_has_the_shell_and_its_script(shell: str) -> None:
    found = validated("completion", script(shell, "-o", "json"))
    assert found == {"shell": shell, "script": script(shell)}


def test_unknown_shell_is_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "knft", "completion", "tcsh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr


def test_scripts_do_not_need_their_shell() -> None:
    """They are printed in an image too, which has no shell."""
    for shell in SHELLS:
        command = [sys.executable, "-m", "knft", "completion", shell]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": "/nonexistent"})
        assert (done.stdout, done.stderr) == (script(shell), "")
