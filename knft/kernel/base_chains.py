"""Reads the base chains of all nftables tables through netlink: names, hooks, priorities and policies, and no rules.

See docs/design/netlink-decoding.md.
"""

import struct

from msgspec import Struct

from knft.errors import KernelError
from knft.kernel import netlink_messages, nftables_dump

_TABLE, _NAME, _HOOK, _POLICY, _TYPE = 1, 3, 4, 5, 7  # NFTA_CHAIN_...
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2  # NFTA_HOOK_...
_HOOKS = ("prerouting", "input", "forward", "output", "postrouting")  # NF_INET_...
_IP_FAMILIES = ("ip", "ip6", "inet")
_PRIORITY = struct.Struct(">i")
_DROP = bytes(4)  # NF_DROP


class BaseChain(Struct, frozen=True):
    """A base chain at a hook of IP packets; ``drops`` is whether its policy is drop."""

    family: str
    table: str
    name: str
    type: str
    hook: str
    priority: int
    drops: bool = False


def base_chains() -> tuple[BaseChain, ...]:
    """Return the base chains of families ip, ip6 and inet; raise KernelError if the kernel refuses."""
    try:
        found = nftables_dump.dump(nftables_dump.GET_CHAIN, nftables_dump.NEW_CHAIN)
    except OSError as error:
        msg = f"cannot list the base chains of nftables: {error.strerror}"
        raise KernelError(msg) from error
    chains = (_base_chain(item) for item in found if item.family in _IP_FAMILIES and _HOOK in item.fields)
    return tuple(chain for chain in chains if chain is not None)


def _base_chain(item: nftables_dump.Item) -> BaseChain | None:
    """Return a chain, None if it is at another hook, such as ingress."""
    hook = item.fields[_HOOK]
    attributes = netlink_messages.payloads(hook, 0, len(hook))
    number = int.from_bytes(attributes.get(_HOOK_NUMBER, b""), "big")
    if number >= len(_HOOKS) or len(attributes.get(_HOOK_PRIORITY, b"")) != _PRIORITY.size:
        return None
    return BaseChain(
        item.family,
        item.text(_TABLE),
        item.text(_NAME),
        item.text(_TYPE),
        _HOOKS[number],
        _PRIORITY.unpack(attributes[_HOOK_PRIORITY])[0],
        drops=item.fields.get(_POLICY) == _DROP,
    )
