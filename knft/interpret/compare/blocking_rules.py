"""Finds rules of other programs that block packets to Services on both sides, so that the outcomes are equal."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from knft.interpret.outcomes import POLICY_DROP, Disposition, Path
from knft.interpret.owned_chains import is_owned_chain

_BLOCKED = (Disposition.DROPPED, Disposition.REJECTED)


BlockedFrontend = tuple[int, int, int | None, bool]
"""The destination of blocked packets: address, protocol, port (None for several), whether the node has the address."""


class BlockingRule(Struct, frozen=True):
    """A rule, by its chain, line and text; ``verb`` is "drops" or "rejects"."""

    chain: str
    line: int
    text: str
    verb: str


def blocking_rules(left: Sequence[Path], right: Sequence[Path]) -> frozenset[BlockingRule]:
    """Return the rules of other programs that block packets of new connections on both sides.

    Policies of chains are not among them: hosts often have a policy that drops, and rules that accept some packets.
    """
    found = frozenset(_blocking_rules(left))
    return found and found & frozenset(_blocking_rules(right))


def _blocking_rules(paths: Sequence[Path]) -> Iterator[BlockingRule]:
    for path in paths:
        if path.outcome.disposition in _BLOCKED and "new" in path.fields.states and path.trail is not None:
            hit = path.trail
            if not is_owned_chain(hit.chain) and not _is_kubelet_chain(hit.chain) and hit.rule is not POLICY_DROP:
                verb = "drops" if path.outcome.disposition is Disposition.DROPPED else "rejects"
                yield BlockingRule(hit.chain, hit.rule.line, hit.rule.text, verb)


def _is_kubelet_chain(chain: str) -> bool:
    return chain.rpartition(" ")[2].startswith("KUBE-")
