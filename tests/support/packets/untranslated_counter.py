"""An nftables table of the test on the node, which counts packets to frontends that knft has not translated."""

import json
from collections.abc import Sequence
from typing import Self

from tests.support.lab import plan
from tests.support.lab.namespace import Namespace

_VIRTUAL = (plan.SERVICES, plan.EXTERNAL)
# The priorities are before knft's filter chains, and after its NAT chains (prerouting and output, -101).
_RULES = """\
table inet untranslated {{
    counter untranslated {{}}
    chain count {{
        ip daddr {{ {ipv4} }} counter name untranslated
        ip6 daddr {{ {ipv6} }} counter name untranslated
        ct direction original fib daddr type local meta l4proto {{ tcp, udp }} th dport {{ {node_ports} }} \
            counter name untranslated
    }}
    chain forward {{ type filter hook forward priority -150; jump count; }}
    chain input {{ type filter hook input priority -150; jump count; }}
    chain output {{ type filter hook output priority -50; jump count; }}
}}
"""


class UntranslatedCounter:
    """Counts packets with a Service address or NodePort as their destination after NAT; a context manager."""

    def __init__(self, namespace: Namespace, node_ports: Sequence[int]) -> None:
        """Take the node; nothing is loaded yet."""
        self._namespace = namespace
        self._rules = _RULES.format(
            ipv4=", ".join(networks.ipv4 for networks in _VIRTUAL),
            ipv6=", ".join(networks.ipv6 for networks in _VIRTUAL),
            node_ports=", ".join(map(str, node_ports)),
        )

    def __enter__(self) -> Self:
        """Load the table."""
        self._namespace.run(["nft", "-f", "-"], stdin=self._rules)
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the table."""
        self._namespace.run(["nft", "delete", "table", "inet", "untranslated"])

    @property
    def packets(self) -> int:
        """The number of such packets so far."""
        listed = self._namespace.run(["nft", "-j", "list", "counter", "inet", "untranslated", "untranslated"]).stdout
        return sum(int(item["counter"]["packets"]) for item in json.loads(listed)["nftables"] if "counter" in item)
