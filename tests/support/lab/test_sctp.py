"""SCTP made by hand passes the kernel's checks, is translated, and is answered."""

import pytest

from . import sctp
from .links import forget_flows
from .outcomes import Answered, Rejected
from .plan import NODE, Version
from .responders import Responders
from .topology import Lab
from .traffic import dial

PORT = 9999
VIRTUAL = {4: "10.96.0.10", 6: "fd00:10:96::10"}
both_families = pytest.mark.parametrize("version", [4, 6])


def test_the_checksum_is_castagnolis() -> None:
    assert sctp.crc32c(b"123456789") == 0xE3069283


@pytest.mark.kernel
@both_families
@pytest.mark.parametrize("client", ["outside", "node", "local-1", "local-2"])
def test_an_init_reaches_its_server_and_the_answer_its_client(lab: Lab, client: str, version: Version) -> None:
    """Dialled by its address, and by a virtual one that the node translates: conntrack knows the association."""
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
    forget_flows(node)

    assert isinstance(direct, Answered)
    assert (direct.server, direct.port, direct.source_port) == ("local-1", PORT, 5555)
    assert isinstance(translated, Answered)
    assert translated.server == "local-1"
    assert translated.source == NODE.gateway.of(version)
    assert reached == {"local-1": 2}


@pytest.mark.kernel
@both_families
@pytest.mark.parametrize("client", ["outside", "node"])
def test_an_init_is_rejected(lab: Lab, client: str, version: Version) -> None:
    """The ICMP message of a rule is heard, also where the client's own host sends it."""
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
