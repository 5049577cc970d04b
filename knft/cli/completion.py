"""``knft completion``: prints a script for a shell, which runs knft for the completions of each word.

click finds the completions. These classes add values after an equals sign, because kube-proxy's flags are usually
written so: ``--proxy-mode=nftables``.
"""

from collections.abc import Iterator

from click import Group
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from knft.cli.go_flags import GoCommand

PROGRAM = "knft"
"""The command that shells complete."""

Items = list[CompletionItem]


def script(shell: str, commands: Group, variable: str) -> str:
    """Return the script for "bash", "zsh" or "fish"; it runs knft with an environment variable of this name."""
    complete = _SHELLS[shell](commands, {}, PROGRAM, variable)
    # Not BashComplete.source, which runs bash to check its version: the script may be for another machine.
    return ShellComplete.source(complete)


def register() -> None:
    """Let click use the classes of this module."""
    for shell in _SHELLS.values():
        add_completion_class(shell)


def _arguments(complete: ShellComplete, words: list[str]) -> list[str]:
    """Return the words before the cursor with a value after each switch, so that the next word is not its value."""
    commands = complete.cli.commands if isinstance(complete.cli, Group) else {}
    command = commands.get(words[0]) if words else None
    return [words[0], *command.in_clicks_syntax(words[1:])] if isinstance(command, GoCommand) else words


def _with_flag(items: Items, word: str) -> Items:
    """Return the completions of a whole word such as ``--proxy-mode=nft``; click's are only values."""
    flag, equals, _ = word.partition("=")
    if not equals or not flag.startswith("-"):
        return items
    return [
        CompletionItem(f"{flag}={item.value}", item.type, item.help) if item.type == "plain" else item for item in items
    ]


class _Bash(BashComplete):
    """Completion for bash, which by default breaks words at equals signs and colons (COMP_WORDBREAKS)."""

    # click's own script sets global variables of the user's shell: type, value and completion.
    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD %(complete_var)s=bash_complete $1 2>/dev/null)

    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            plain) COMPREPLY+=("$value") ;;
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
        esac
    done
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor and the word at the cursor, joined at equals signs."""
        args, incomplete = super().get_completion_args()
        *before, last = _joined([*args, incomplete])
        return before, last

    def get_completions(self, args: list[str], incomplete: str) -> Items:
        """Return the completions of the word at the cursor: only values, because bash keeps the flag before them."""
        return super().get_completions(_arguments(self, args), incomplete)


def _joined(words: list[str]) -> Iterator[str]:
    """Yield the words; a flag, an equals sign and a value are one word."""
    joined: list[str] = []
    for word in words:
        after_equals = bool(joined) and joined[-1].startswith("-") and joined[-1].endswith("=")
        if joined and (after_equals or (word == "=" and joined[-1].startswith("-"))):
            joined[-1] += word
        else:
            joined.append(word)
    return iter(joined)


class _Zsh(ZshComplete):
    """Completion for zsh."""

    source_template = """\
#compdef %(prog_name)s
compdef _%(prog_name)s %(prog_name)s

_%(prog_name)s() {
    local -a plain described response
    local type value description

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete $words[1] 2>/dev/null)}")

    for type value description in $response; do
        case $type in
            plain)
                if [[ $description == _ ]]; then
                    plain+=("$value")
                else
                    described+=("$value:$description")
                fi ;;
            dir)
                compset -P '-*='
                _path_files -/ ;;
            file)
                compset -P '-*='
                _path_files ;;
        esac
    done

    (( $#described )) && _describe -V unsorted described -U
    (( $#plain )) && compadd -U -V unsorted -a plain
}

# In a file of fpath this is the first completion. click's own script loses the second one.
if [[ $funcstack[1] == _%(prog_name)s ]]; then
    _%(prog_name)s "$@"
fi
"""

    def get_completions(self, args: list[str], incomplete: str) -> Items:
        """Return the completions of the word at the cursor."""
        return _with_flag(super().get_completions(_arguments(self, args), incomplete), incomplete)


class _Fish(FishComplete):
    """Completion for fish."""

    source_template = """\
function %(complete_func)s
    set -l token (commandline -ct)
    set -l flag ""
    if string match -q -- "-*=*" $token
        set flag (string split -m 1 -- "=" $token)[1]"="
    end
    set -l words (commandline -opc)

    for completion in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \
COMP_CWORD=(commandline -ct) $words[1] 2>/dev/null)
        set -l item (string split -m 1 -- "," $completion)
        switch $item[1]
            case plain
                echo $item[2]
            case dir
                printf "%%s\\n" $flag(__fish_complete_directories $item[2])
            case file
                printf "%%s\\n" $flag(__fish_complete_path $item[2])
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""

    def get_completions(self, args: list[str], incomplete: str) -> Items:
        """Return the completions of the word at the cursor."""
        return _with_flag(super().get_completions(_arguments(self, args), incomplete), incomplete)


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}
