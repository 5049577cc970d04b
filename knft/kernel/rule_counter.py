"""Reads the counters of a chain's rules through netlink.

a rule: nfgenmsg, then NFTA_RULE_TABLE, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS { NFTA_LIST_ELEM { NFTA_EXPR_NAME
    "counter", NFTA_EXPR_DATA { NFTA_COUNTER_BYTES, NFTA_COUNTER_PACKETS } }, ... }, ...
"""

import struct
from collections.abc import Iterator

from knft.errors import KernelError
from knft.kernel import netlink_messages as messages
from knft.kernel.netlink_dump import dump

_NETFILTER = 12  # NETLINK_NETFILTER
_NEW_RULE, _GET_RULE = 10 << 8 | 6, 10 << 8 | 7  # NFNL_SUBSYS_NFTABLES, NFT_MSG_...
_NFGENMSG = struct.Struct("=BBH")
_TABLE, _CHAIN, _EXPRESSIONS = 1, 2, 4  # NFTA_RULE_...
_NAME, _DATA = 1, 2  # NFTA_EXPR_...
_PACKETS = 2  # NFTA_COUNTER_PACKETS
_COUNT = struct.Struct(">Q")


def counted_packets(family: int, table: str, chain: str) -> int | None:
    """Return how many packets the rules of a chain have counted, None if no rule counts or the chain does not exist.

    ``family`` is the number that nf_tables uses. Raises KernelError if the kernel refuses.
    """
    names = ((_TABLE, table), (_CHAIN, chain))
    wanted = b"".join(messages.attribute(kind, name.encode() + b"\0") for kind, name in names)
    try:
        rules = dump(_NETFILTER, _GET_RULE, _NFGENMSG.pack(family, 0, 0) + wanted, _NEW_RULE)
    except OSError as error:
        msg = f"cannot read the counters of chain {chain}: {error.strerror}"
        raise KernelError(msg) from error
    counts = [count for rule in rules for count in _counts(rule)]
    return sum(counts) if counts else None


def _counts(rule: bytes) -> Iterator[int]:
    for kind, start, end in messages.attributes(rule, _NFGENMSG.size):
        if kind == _EXPRESSIONS:
            for _, first, last in messages.attributes(rule, start, end):
                expression = messages.payloads(rule, first, last)
                if expression.get(_NAME) == b"counter\0":
                    data = expression[_DATA]
                    yield _COUNT.unpack(messages.payloads(data, 0, len(data))[_PACKETS])[0]
