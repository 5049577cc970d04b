"""A witness: a table of the test's own on the node, which counts packets that knft has let pass untranslated."""

import json
from collections.abc import Sequence
from typing import Self

from tests.support.lab import plan
from tests.support.lab.namespace import Namespace

_VIRTUAL = (plan.SERVICES, plan.EXTERNAL)
# Before knft's own filter, and after its translation (prerouting and output, -101).
_RULES = """\
table inet witness {{
    counter untranslated {{}}
    chain count {{
        ip daddr {{ {ipv4} }} counter name untranslated
        ip6 daddr {{ {ipv6} }} counter name untranslated
        ct direction original fib daddr type local meta l4proto {{ tcp, udp }} th dport {{ {node_ports} }} counter \
            name untranslated
    }}
    chain forward {{ type filter hook forward priority -150; jump count; }}
    chain input {{ type filter hook input priority -150; jump count; }}
    chain output {{ type filter hook output priority -50; jump count; }}
}}
"""


class Witness:
    """Counts packets to virtual addresses and NodePorts that leave or reach the node as such; a context manager."""

    def __init__(self, namespace: Namespace, node_ports: Sequence[int]) -> None:
        """Prepare to watch a node."""
        self._namespace = namespace
        self._rules = _RULES.format(
            ipv4=", ".join(networks.ipv4 for networks in _VIRTUAL),
            ipv6=", ".join(networks.ipv6 for networks in _VIRTUAL),
            node_ports=", ".join(map(str, node_ports)),
        )

    def __enter__(self) -> Self:
        """Start counting."""
        self._namespace.run(["nft", "-f", "-"], stdin=self._rules)
        return self

    def __exit__(self, *_: object) -> None:
        """Take the table away."""
        self._namespace.run(["nft", "delete", "table", "inet", "witness"])

    @property
    def untranslated(self) -> int:
        """How many packets were seen."""
        listed = self._namespace.run(["nft", "-j", "list", "counter", "inet", "witness", "untranslated"]).stdout
        return sum(int(item["counter"]["packets"]) for item in json.loads(listed)["nftables"] if "counter" in item)
