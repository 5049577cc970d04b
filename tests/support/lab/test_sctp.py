"""The SCTP packets that the lab builds are translated by the kernel, and answered."""

import pytest

from tests.support.lab import sctp
from tests.support.lab.links import flush_conntrack
from tests.support.lab.outcomes import Answered, Rejected
from tests.support.lab.plan import NODE, Version
from tests.support.lab.responders import Responders
from tests.support.lab.topology import Lab
from tests.support.lab.traffic import dial

PORT = 9999
VIRTUAL = {4: "10.96.0.10", 6: "fd00:10:96::10"}
both_families = pytest.mark.parametrize("version", [4, 6])


def test_checksum_is_crc32c() -> None:
    assert sctp.crc32c(b"123456789") == 0xE3069283


@pytest.mark.kernel
@both_families
@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
def test_init_is_answered_by_its_server(lab: Lab, client: str, version: Version) -> None:
    """At its own address, and at a virtual one that the node translates."""
    pod, host = lab.host("local-1"), lab.host(client)
    family, target = ("ip", pod.ipv4) if version == 4 else ("ip6", f"[{pod.ipv6}]")
    match = f"{family} daddr {VIRTUAL[version]} sctp dport 80 dnat to {target}:{PORT}"
    rules = f"""table {family} t {{
      chain pre {{ type nat hook prerouting priority -100; {match}; }}
      chain out {{ type nat hook output priority -100; {match}; }}
      chain post {{ type nat hook postrouting priority 100; ct status dnat masquerade; }}
    }}"""
    node = lab.host("node").namespace
    with Responders() as servers:
        servers.serve(pod, PORT, "sctp")
        direct = dial(host, pod.address(version), PORT, "sctp", source_port=5555)
        node.run(["nft", "-f", "-"], stdin=rules)
        translated = dial(host, VIRTUAL[version], 80, "sctp")
        reached = dict(servers.counts)
    node.run(["nft", "flush", "ruleset"])
    flush_conntrack(node)

    assert isinstance(direct, Answered)
    assert (direct.server, direct.port, direct.source_port) == ("local-1", PORT, 5555)
    assert isinstance(translated, Answered)
    assert translated.server == "local-1"
    assert translated.source == NODE.gateway.of(version)
    assert reached == {"local-1": 2}


@pytest.mark.kernel
@both_families
@pytest.mark.parametrize("client", ["outside", "node"])
def test_init_is_rejected_by_a_rule(lab: Lab, client: str, version: Version) -> None:
    """The client receives the ICMP error, also from its own host."""
    family = "ip" if version == 4 else "ip6"
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority 0; sctp dport {PORT} reject; }}\n"
        for hook in ("forward", "output")
    )
    node = lab.host("node").namespace
    node.run(["nft", "-f", "-"], stdin=f"table {family} t {{ {chains} }}")

    outcome = dial(lab.host(client), lab.host("local-1").address(version), PORT, "sctp")
    node.run(["nft", "flush", "ruleset"])

    assert outcome == Rejected("icmp")
