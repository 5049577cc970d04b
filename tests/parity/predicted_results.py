"""The results of a packet that an outcome of ``knft diff`` allows in the lab."""

import ipaddress

from knft.interpret.outcomes import Disposition, Outcome
from tests.parity.dial import DROPPED, Result, Target
from tests.parity.packets import NODE, OUTSIDE, source_address
from tests.parity.random_cluster import PODS, host_addresses
from tests.support.lab import plan

REFUSED = "refused"
"""A rejection, a reset, or an error of the client's own host."""
_HOSTS = {getattr(host_addresses(host), family): host for host in PODS for family in ("ipv4", "ipv6")}


def kind_of(target: Target, result: Result) -> str:
    """Return the endpoint and whether it saw the client's address, or DROPPED or REFUSED."""
    server, is_answer, source = result.partition(" from ")
    if not is_answer:
        return DROPPED if result == DROPPED else REFUSED
    return _answer(target, server, is_kept=source == source_address(target))


def allowed_kinds(target: Target, outcome: Outcome) -> frozenset[str]:
    """Return the kinds of results that a packet with an outcome can have in the lab."""
    if outcome.disposition is Disposition.DROPPED:
        return frozenset({DROPPED})
    if outcome.disposition is not Disposition.DELIVERED:
        return frozenset({REFUSED})
    if not outcome.is_translated:
        # If the address is the node's own, the node rejects the packet, because nothing listens on the port. If no host
        # has the address, the packet gets no answer.
        return frozenset({DROPPED, REFUSED})
    address = str(ipaddress.ip_address(outcome.address)) if outcome.address is not None else target.address
    host, is_kept = _HOSTS.get(address, address), outcome.source == "kept"
    answer = _answer(target, f"{host}:{outcome.port or target.port}", is_kept=is_kept)
    return frozenset({answer, DROPPED} if is_kept and _misses_node(target.client, host) else {answer})


def refusals_of(kinds: frozenset[str]) -> frozenset[str]:
    """Return the kinds with "an answer" in place of all answers."""
    return frozenset(kind if kind in (DROPPED, REFUSED) else "an answer" for kind in kinds)


def _answer(target: Target, server: str, *, is_kept: bool) -> str:
    # A process on the node has several addresses, of which it may use any.
    source = "" if target.client == NODE else " without masquerading" if is_kept else " with masquerading"
    return f"{server}{source}"


def _misses_node(client: str, host: str) -> bool:
    """Tell whether answers do not pass the node: the client then does not recognize them."""
    is_remote = host.startswith(plan.REMOTE.pod_prefix)
    return host == client or (is_remote and (client == OUTSIDE or client.startswith(plan.REMOTE.pod_prefix)))
