"""What a node's kernel holds when a connection has failed, for the search for the cause."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.lab.namespace import Namespace

_LISTINGS = (["nft", "list", "ruleset"], ["iptables-legacy-save"], ["ip6tables-legacy-save"])
# Of the calling thread's namespace. Unlike conntrack(8), it lists both families.
_ENTRIES = Path("/proc/thread-self/net/nf_conntrack")


def kernel_state(node: Namespace) -> str:
    """Return all rules and conntrack entries of the node; a listing that fails is replaced by its error."""
    return "\n".join(_sections(node))


def _sections(node: Namespace) -> Iterator[str]:
    for command in _LISTINGS:
        done = node.run(command, check=False)
        yield f"# {' '.join(command)}\n{done.stdout if done.returncode == 0 else done.stderr}"
    with node.entered():
        yield f"# {_ENTRIES}\n{_ENTRIES.read_text()}"
