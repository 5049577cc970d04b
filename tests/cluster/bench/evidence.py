"""What a node's kernel holds when a connection has failed, for the search for the cause."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.support.lab.namespace import Namespace

# Of the calling thread's namespace. Unlike conntrack(8), it lists both families.
_ENTRIES = Path("/proc/thread-self/net/nf_conntrack")
_LISTINGS = (["nft", "list", "ruleset"], ["iptables-legacy-save"], ["ip6tables-legacy-save"])


def kernel_state(node: Namespace) -> str:
    """Return all conntrack entries and rules of the node; a listing that fails is replaced by its error."""
    return "\n".join(_sections(node))


def _sections(node: Namespace) -> Iterator[str]:
    # First, because the entry of a refused connection lasts 10 seconds.
    yield _section(str(_ENTRIES), partial(_entries, node))
    for command in _LISTINGS:
        yield _section(" ".join(command), partial(_listing, node, command))


def _section(title: str, read: Callable[[], str]) -> str:
    try:
        content = read()
    except OSError as error:
        content = f"{error}\n"
    return f"# {title}\n{content}"


def _entries(node: Namespace) -> str:
    with node.entered():
        return _ENTRIES.read_text()


def _listing(node: Namespace, command: list[str]) -> str:
    done = node.run(command, check=False)
    return done.stdout if done.returncode == 0 else done.stderr
